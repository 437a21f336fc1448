#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/processors.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parallel/text_messages.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "block_pipeline.hpp"
#include "cleaned_texts.hpp"
#include "encoded_text.hpp"
#include "given_fields.hpp"
#include "given_texts.hpp"
#include "prepare_options.hpp"
#include "prepared_vocabulary.hpp"

namespace heddle {
namespace {

using Path = std::filesystem::path;

/// Whether this command gives files this name.
bool is_output(std::string const& name) {
  constexpr std::array<std::string_view, 4> others = {"valid.h5", "vocab.model", "vocab.source.model",
                                                      "vocab.target.model"};
  return is_training_file(name) || std::ranges::find(others, name) != others.end();
}

/// The files in the directory that this command may have written.
std::set<Path> earlier_files(Path const& directory) {
  std::set<Path> found;
  std::error_code absent;
  for (auto const& entry : std::filesystem::directory_iterator(directory, absent)) {
    if (is_output(entry.path().filename().string())) {
      found.insert(entry.path());
    }
  }
  return found;
}

/// Whether this command replaces files of this name. A validation set is put beside a training dataset of its
/// vocabulary.
bool replaces(PrepareOptions const& options, std::string const& name) {
  return options.has_training_text() ? is_output(name) : name == "valid.h5";
}

/// Throws for files of an earlier command that stay, or that cannot be replaced.
void check_earlier_files(PrepareOptions const& options) {
  auto earlier = earlier_files(options.directory);
  std::erase_if(earlier, [&](Path const& file) { return !replaces(options, file.filename().string()); });
  auto const dataset = std::ranges::find_if(earlier, [](Path const& file) { return file.extension() == ".h5"; });
  if (options.only_vocabulary && dataset != earlier.end()) {
    throw UsageError("{} exists and has a vocabulary of its own: choose another --out for --only-vocab",
                     dataset->string());
  }
  if (!options.overwrite && !earlier.empty()) {
    throw UsageError("{} exists: choose another --out, or replace it with --overwrite", earlier.begin()->string());
  }
  std::ranges::for_each(earlier, require_replaceable);
}

/// Writes the vocabulary's model files. Those of a training dataset to which a validation set is added are there
/// already: throws UsageError if they are others.
void write_models(Path const& directory, PrepareOptions const& options, Vocabulary const& vocabulary) {
  std::map<std::string, std::string> models{{"vocab.model", vocabulary.source.model()}};
  if (vocabulary.source.model() != vocabulary.target.model()) {
    models = {{"vocab.source.model", vocabulary.source.model()}, {"vocab.target.model", vocabulary.target.model()}};
  }
  if (!options.has_training_text()) {
    for (Path const& file : earlier_files(options.directory)) {
      auto const model = models.find(file.filename().string());
      if (file.extension() == ".model" && (model == models.end() || read_regular(file) != model->second)) {
        throw UsageError("{} has another vocabulary: choose another --out, or give --vocab-model {}", file.string(),
                         options.directory.string());
      }
      models.erase(file.filename().string());
    }
  }
  for (auto const& [name, bytes] : models) {
    replace_file(directory / name, bytes);
  }
}

/// Threads of each rank that were asked for, or one for each processor that the rank may use: ranks of a host that may
/// use the same ones share them.
int threads_of_rank(PrepareOptions const& options, Communicator const& world) {
  if (options.threads > 0) {
    return options.threads;
  }
  auto const places = gather_texts(world, fmt::format("{} {}", host_name(), processors_of_thread()));
  auto const sharing = std::ranges::count(places, places[static_cast<std::size_t>(world.rank())]);
  return std::max(1, usable_processors() / static_cast<int>(sharing));
}

constexpr int vocabulary_tag = 3;

void send_vocabulary(Vocabulary const& vocabulary, Communicator const& world) {
  std::vector<std::unique_ptr<OutgoingText>> sent;
  for (int rank = 1; rank < world.size(); ++rank) {
    for (Tokenizer const* const tokenizer : {&vocabulary.source, &vocabulary.target}) {
      sent.push_back(std::make_unique<OutgoingText>(world, tokenizer->model(), rank, vocabulary_tag));
    }
  }
  std::ranges::for_each(sent, [](auto const& text) { text->wait(); });
}

/// Waits for it without taking a core from rank 0, which may first have to learn it.
Vocabulary receive_vocabulary(Communicator const& world) {
  IncomingTexts texts(world, 0, vocabulary_tag);
  while (!texts.progress()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Tokenizer source = Tokenizer::from_model(texts.take());
  texts.start();
  return {std::move(source), Tokenizer::from_model(texts.take())};
}

}  // namespace

bool is_training_file(std::string const& name) {
  if (!name.starts_with("train") || !name.ends_with(".h5")) {
    return false;
  }
  std::string const number = name.substr(5, name.size() - 8);  // "" or "-00012"
  return number.empty() ||
         (number.size() >= 6 && number[0] == '-' && number.find_first_not_of("0123456789", 1) == std::string::npos);
}

PrepareReport prepare(PrepareOptions const& options, std::ostream& progress, Communicator const& world) {
  check_options(options);
  int const threads = threads_of_rank(options, world);
  if (world.rank() > 0) {
    if (!options.only_vocabulary) {
      serve_blocks(options, receive_vocabulary(world), threads, world);
    }
    return {};
  }
  check_earlier_files(options);
  std::optional<Vocabulary> const given = given_vocabulary(options, progress);
  if (given && !options.lines()) {
    frame_of(*given, options.languages);  // before the texts are read
  }
  PendingDirectory directory(options.directory, PendingDirectory::Target::any);
  std::vector<GivenTexts> texts = given_texts(options);
  std::optional<CopiedTexts> copies;
  bool const read_twice = (!given && !options.only_vocabulary) || options.clean;
  if (read_twice || pipes(texts) > 1) {  // several may be written by one program, in any order
    copies.emplace(texts, directory.path(), progress);
  }
  std::optional<CleaningReport> cleaning;
  if (options.clean) {
    cleaning =
        clean_training_text(texts.front(), texts.size() > 1 ? &texts.back() : nullptr, options, threads, progress);
  }
  Vocabulary const vocabulary = given ? *given : learn_vocabulary(options, threads, texts.front(), progress);
  write_models(directory.path(), options, vocabulary);
  PrepareReport report{
      {}, {}, std::move(cleaning), vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()};
  if (!options.only_vocabulary) {
    send_vocabulary(vocabulary, world);
    BlockPipeline pipeline(options, vocabulary, threads, world);
    // The validation text first: it is short, and may have an error.
    for (GivenTexts const& each : texts | std::views::reverse) {
      bool const train = each.name == "train";
      DatasetFiles files(directory.path(), each.name, vocabulary, options.lines(),
                         train ? GivenFields(options).fields() : SampleFields(), train ? options.samples_per_file : 0);
      (train ? report.train : report.valid).emplace(encode_text(each, options, threads > 1, pipeline, files, progress));
      files.commit();
    }
    pipeline.end();
  }
  copies.reset();  // NFS keeps a name in the directory for a file that is removed and open
  directory.commit([&](std::string const& name) { return options.overwrite && replaces(options, name); });
  return report;
}

}  // namespace heddle
