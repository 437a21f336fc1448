#include <boost/json.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/io/formats/npz.hpp>

#include "exchange/importing.hpp"
#include "exchange/probe.hpp"
#include "kernel_test_support.hpp"
#include "mutation.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// All values of a document, from the outside to the inside.
void collect(json::value& value, std::vector<json::value*>& places) {
  places.push_back(&value);
  if (value.is_object()) {
    for (auto& member : value.get_object()) {
      collect(member.value(), places);
    }
  } else if (value.is_array()) {
    for (json::value& item : value.get_array()) {
      collect(item, places);
    }
  }
}

/// Values of which some has the wrong type, is out of range or is large, wherever it stands.
json::array hostile_values() {
  json::value deep = 1;
  for (int depth = 0; depth < 30; ++depth) {
    deep = json::array{std::move(deep)};
  }
  return {nullptr,
          true,
          false,
          0,
          -1,
          3,
          1'000'000,
          (std::int64_t{1} << 31) - 1,
          std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min(),
          std::numeric_limits<std::uint64_t>::max(),
          1e308,
          0.5,
          "",
          "gelu",
          "\n[model]\nd_model = 3 # \"",
          std::string(100'000, 'x'),
          json::array(),
          json::array{json::object()},
          json::object(),
          deep};
}

/// A document in which one value is a hostile one. Consecutive numbers change different places, each time with another
/// value: a part of the numbers reaches every place, and all pairs of place and value come in the end.
std::string with_hostile_value(std::string const& text, std::int64_t number) {
  static json::array const values = hostile_values();
  json::value document = json::parse(text);
  std::vector<json::value*> places;
  collect(document, places);
  constexpr std::size_t stride = 7919;  // a prime number: places of a long list are taken from all of it
  constexpr std::size_t unlike = 5;     // values that stand side by side in the list are alike
  auto const index = static_cast<std::size_t>(number);
  std::size_t const place = index % places.size();
  *places[place * stride % places.size()] = values[(place + index / places.size() * unlike) % values.size()];
  return json::serialize(document);
}

class HostileImports : public KernelTest {
 protected:
  using Change = std::function<std::string(std::string const& original, std::int64_t number)>;

  static fs::path golden(std::string const& model) { return fs::path(HEDDLE_TEST_DATA) / "exchange" / model; }

  /// Imports as the command does. Throws another error than Heddle's where the code is not one for bad data, or where
  /// a refused import leaves something.
  bool imported(fs::path const& model) {
    fs::path const run = directory_ / "run";
    fs::remove_all(run);
    try {
      TrainedModelOptions options;
      options.checkpoint = import_model(execution_, model, run).checkpoint.string();
      probe_logits(execution_, options);
      return true;
    } catch (Error const& error) {
      if (error.code() != ExitCode::bad_data && error.code() != ExitCode::bad_config) {
        throw std::runtime_error(std::string("with another code: ") + error.what());
      }
      if (fs::exists(run)) {
        throw std::runtime_error(std::string("a refused import left a run: ") + error.what());
      }
      throw;
    }
  }

  /// Imports a golden model again and again, each time with another change of one of its files.
  void attack(std::string const& model, std::string const& file, std::int64_t small, Change const& change) {
    fs::path const copy = directory_ / "copy";
    fs::remove_all(copy);
    fs::copy(golden(model), copy);
    std::string const original = read_whole(copy / file);
    CaseResults const results = run_cases(torture_count(small, 20 * small), [&](std::int64_t number) {
      std::ofstream(copy / file, std::ios::binary) << change(original, number);
      return imported(model.ends_with("_npz") && file.ends_with(".npz") ? copy / file : copy);
    });
    print_figures(results.text(model + "/" + file));
    EXPECT_TRUE(results.good()) << model << " " << file;
    EXPECT_GT(results.count(Outcome::refused), 0) << model << " " << file;
    EXPECT_TRUE(!memory_is_ours || results.largest_memory < std::int64_t{1} << 30) << results.largest_memory;
  }

  void mutate(std::string const& model, std::string const& file, std::int64_t small = 60) {
    attack(model, file, small, [](std::string const& original, std::int64_t number) {
      return mutated(original, static_cast<std::uint64_t>(number));
    });
  }

  TemporaryDirectory directory_;
};

TEST_F(HostileImports, Configurations) {
  // All pairs of place and value of one, half of those of the others, most of whose keys are the same.
  attack("marian", "config.json", 720, with_hostile_value);
  for (char const* const model : {"t5-v1.1", "nllb", "mistral", "llama-bpe"}) {
    attack(model, "config.json", 320, with_hostile_value);
  }
  mutate("marian", "config.json");
}

TEST_F(HostileImports, Tokenizers) {
  attack("llama-bpe", "tokenizer.json", 500, with_hostile_value);
  attack("llama-bpe", "tokenizer_config.json", 60, with_hostile_value);
  attack("nllb", "tokenizer_config.json", 150, with_hostile_value);
  attack("t5-v1.1", "tokenizer_config.json", 150, with_hostile_value);
  attack("marian", "vocab.json", 200, with_hostile_value);
  mutate("marian", "vocab.json");
  mutate("llama-bpe", "tokenizer.json");
  for (auto const& [model, file] : {std::pair("marian", "source.spm"),
                                    {"nllb", "sentencepiece.bpe.model"},
                                    {"t5-v1.1", "spiece.model"},
                                    {"mistral", "tokenizer.model"},
                                    {"marian_npz", "vocab.spm"}}) {
    mutate(model, file, 100);
  }
}

TEST_F(HostileImports, Tensors) {
  for (char const* const model : {"marian", "llama-bpe"}) {
    attack(model, "model.safetensors", 150, [](std::string const& original, std::int64_t number) {
      constexpr std::size_t header = 4000;
      return mutated(original.substr(0, header), static_cast<std::uint64_t>(number)) + original.substr(header);
    });
    mutate(model, "model.safetensors");
  }
}

/// The golden model of Marian with another text in place of its special:model.yml.
std::string npz_with(fs::path const& model, fs::path const& scratch, std::string const& yaml) {
  NpzFile const from = NpzFile::open(model);
  fs::remove(scratch);
  NpzWriter writer(scratch);
  for (auto const& [name, tensor] : from.tensors()) {
    bool const text = name == "special:model.yml";
    std::string const bytes = text ? yaml : from.bytes(name);
    writer.begin(name, text ? "|i1" : "<f4", text ? std::vector{std::ssize(yaml)} : tensor.shape);
    writer.write({reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()});
  }
  writer.finish();
  return read_whole(scratch);
}

TEST_F(HostileImports, MarianFiles) {
  mutate("marian_npz", "model.npz", 150);
  mutate("marian_npz", "decoder.yml", 100);
  fs::path const model = golden("marian_npz") / "model.npz";
  std::string const yaml = NpzFile::open(model).bytes("special:model.yml");
  attack("marian_npz", "model.npz", 200, [&](std::string const& /*original*/, std::int64_t number) {
    return npz_with(model, directory_ / "changed.npz", mutated(yaml, static_cast<std::uint64_t>(number)));
  });
}

}  // namespace
}  // namespace heddle
