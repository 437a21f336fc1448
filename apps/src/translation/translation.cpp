#include "translation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <iostream>
#include <system_error>

#include "report/warning.hpp"

namespace heddle {

namespace fs = std::filesystem;
namespace po = boost::program_options;

void add_generation_options(OptionsDescription& description, GenerationOptions& options, char const* input,
                            char const* output) {
  description.add_options()  //
      ("beam", with_default(options.beam_size, "N"),
       fmt::format("hypotheses kept for each {}; 1 is greedy", input).c_str())  //
      ("length-penalty", with_default(options.length_penalty, "X"),
       "a hypothesis's score is its log-probability divided by its tokens (and its end) to this power")  //
      ("max-length", with_default(options.max_length, "N"),
       fmt::format("maximum tokens of a {}; 0: twice the {}'s and 50 more", output, input).c_str())  //
      ("batch-tokens", with_default(options.batch_tokens, "N"),
       fmt::format("hypotheses times {} tokens that are computed together; more is faster and takes more memory", input)
           .c_str());
}

void add_window_options(OptionsDescription& description, WindowOptions& options, std::string const& done) {
  auto const choose = [&options](std::int64_t lines) {
    if (lines < 1) {
      throw UsageError(fmt::format("--window is {}; expected at least 1", lines));
    }
    options.window = lines;
  };
  description.add_options()("window", po::value<std::int64_t>()->value_name("LINES")->notifier(choose),
                            fmt::format("lines read before they are {}, those of similar length together; not given: "
                                        "{}, or 1 where they are typed",
                                        done, default_window)
                                .c_str());
  add_invalid_utf8(description, options.invalid_utf8);
}

void add_text_command_options(OptionsDescription& description, TextCommandOptions& options, char const* input,
                              char const* output, std::string const& done) {
  add_model_options(description, options.model);
  add_generation_options(description, options.generation, input, output);
  description.add_options()  //
      ("input", po::value(&options.text.input)->value_name("TEXT"),
       "read this text, plain or gzip, instead of the standard input")  //
      ("output", po::value(&options.output)->value_name("TEXT"), "write to this file instead of the standard output");
  add_window_options(description, options.text, done);
}

void convert_text(TextCommandOptions const& options, std::string const& command, ModelRequirement const& require,
                  std::function<std::string(TrainedModel&, std::vector<SourceLine> const&)> const& convert) {
  if (options.model.checkpoint.empty()) {
    throw UsageError(fmt::format("{0}: --checkpoint is missing: the model to {0} with", command));
  }
  require_valid(options.generation);
  LineWindows text(options.text);
  auto const model = TrainedModel::open(options.model, require);
  TextOutput output(options.output, {text.path()});
  for (auto lines = text.next(); !lines.empty(); lines = text.next()) {
    output.write(convert(*model, lines));
  }
  text.warn_of_invalid();
}

LineWindows::LineWindows(WindowOptions const& options, std::string const& reference) {
  for (std::string const& path : {options.input.empty() ? "/dev/stdin" : options.input, reference}) {
    if (!path.empty()) {
      readers_.emplace_back(path, options.invalid_utf8);
    }
  }
  window_ = options.window.value_or(readers_.front().is_terminal() ? 1 : default_window);
}

std::vector<SourceLine> LineWindows::next() {
  std::vector<SourceLine> lines;
  std::size_t bytes = 0;
  SourceLine line;
  bool more = true;
  while (std::ssize(lines) < window_ && bytes < max_window_bytes && (more = readers_.front().next(line.text))) {
    line.number = readers_.front().line_number();
    if (readers_.size() > 1 && !readers_.back().next(line.reference)) {
      throw_unequal();
    }
    bytes += line.text.size() + line.reference.size();
    lines.push_back(line);
  }
  if (!more && readers_.size() > 1) {
    if (readers_.back().next(line.reference)) {
      throw_unequal();
    }
    if (readers_.front().line_number() == 0) {
      throw DataError(fmt::format("{} is empty: expected at least one line", path()));
    }
  }
  return lines;
}

void LineWindows::throw_unequal() {
  for (LineReader& reader : readers_) {
    for (std::string rest; reader.next(rest);) {
    }
  }
  throw DataError(fmt::format("{} has {} lines, {} has {}: line n of one must belong to line n of the other", path(),
                              readable_count(readers_.front().line_number()), readers_.back().path().string(),
                              readable_count(readers_.back().line_number())));
}

void LineWindows::warn_of_invalid() const {
  std::ranges::for_each(readers_, warn_of_invalid_lines);
}

void require_equal_lines(WindowOptions const& options, std::string const& reference) {
  for (std::string const& path : {options.input, reference}) {
    std::error_code ignored;
    // A pipe can be read only once. LineWindows reports a file that does not exist.
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
      return;
    }
  }
  LineWindows text(options, reference);
  while (!text.next().empty()) {
  }
}

void warn_of_invalid_lines(LineReader const& reader) {
  auto const [count, first] = reader.invalid_lines();
  if (count > 0) {
    warn(fmt::format("{}: {} of {} lines are not valid UTF-8, the first is line {}; U+FFFD replaces what is invalid",
                     reader.path().string(), readable_count(count), readable_count(reader.line_number()), first));
  }
}

TextOutput::TextOutput(std::string const& path, std::vector<std::string> const& inputs)
    : path_(path.empty() ? "the standard output" : path) {
  if (path.empty()) {
    return;
  }
  for (std::string const& input : inputs) {
    std::error_code ignored;  // a file that does not exist is equivalent to nothing
    if (fs::is_regular_file(path, ignored) && fs::equivalent(path, input, ignored)) {
      throw UsageError(fmt::format("--output {} is the text that is read ({}); expected another file", path, input));
    }
  }
  file_.open(path, std::ios::binary | std::ios::trunc);
  check();
}

void TextOutput::write(std::string const& text) {
  std::ostream& stream = file_.is_open() ? file_ : std::cout;
  stream << text << std::flush;
  check();
}

void TextOutput::check() const {
  if (!file_ || !std::cout) {
    throw Error(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  }
}

std::vector<std::vector<Translation>> translate(TrainedModel& model, std::vector<SourceLine> const& lines,
                                                GenerationOptions const& options) {
  auto const longest = static_cast<std::size_t>(model.longest_source());
  std::vector<std::vector<std::int32_t>> sources;
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < lines.size(); ++place) {
    auto tokens = model.vocabulary().source.encode(lines[place].text);
    if (tokens.empty()) {
      continue;
    }
    if (tokens.size() > longest) {
      std::cerr << fmt::format("heddle: line {}: {} tokens; only the first {} are translated (model.max_length = {})\n",
                               lines[place].number, readable_count(tokens.size()), readable_count(longest),
                               longest + 1);
      tokens.resize(longest);
    }
    sources.push_back(std::move(tokens));
    places.push_back(place);
  }
  std::vector<std::vector<Translation>> translations(lines.size(), {{"", 0}});
  auto const generated = model.generate(sources, options);
  for (std::size_t index = 0; index < generated.size(); ++index) {
    auto& line = translations[places[index]];
    line.clear();
    for (Hypothesis const& hypothesis : generated[index]) {
      line.push_back({model.vocabulary().target.decode(hypothesis.tokens), hypothesis.score});
      std::ranges::replace(line.back().text, '\n', ' ');  // possible with a vocabulary that has byte pieces
    }
  }
  return translations;
}

}  // namespace heddle
