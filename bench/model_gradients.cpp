#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <exception>
#include <fstream>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <heddle/io/formats/safetensors.hpp>
#include <heddle/model.hpp>
#include <iostream>
#include <iterator>
#include <numeric>
#include <run/checkpoints/checkpoint.hpp>
#include <run/configuration/registration.hpp>
#include <sstream>
#include <string>
#include <vector>

// bench_model_gradients RUN MODEL OUT STEPS [KEY=VALUE...] < BATCH: trains the run that `heddle import` made of MODEL,
// a directory of transformers, with one batch, and prints the loss of each step, before its update. OUT/gradients gets
// the gradients of the first step, OUT/parameters what its update makes of the parameters, both as safetensors with
// transformers' names and shapes. A line of BATCH is a pair, "source ids | target ids" without start and end tokens, or
// for a model of one stack "input ids | ids to predict", one for each, of which -1 is none, and perhaps "| N": the
// first N tokens are the first of two texts. For bench/parity/training.py.

namespace {

using heddle::IndexRange;
using heddle::Parameter;

std::vector<std::int32_t> ids_of(std::string const& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::int32_t>(words), {}};
}

heddle::Pack read_batch(heddle::Config const& config, heddle::Vocabulary const& vocabulary) {
  std::vector<heddle::Sample> pairs;
  std::vector<heddle::TokenSequence> sequences;
  for (std::string line; std::getline(std::cin, line);) {
    std::size_t const bar = line.find('|');
    std::size_t const second = std::min(line.find('|', bar + 1), line.size());
    auto const number = static_cast<std::int32_t>(pairs.size());
    pairs.push_back({number, ids_of(line.substr(0, bar)), ids_of(line.substr(bar + 1, second - bar - 1))});
    std::int32_t const first = second < line.size() ? std::stoi(line.substr(second + 1)) : 0;
    sequences.push_back({number, pairs.back().source.tokens, pairs.back().target.tokens, first});
  }
  if (config.model.is_encoder_decoder()) {
    return heddle::make_pack(pairs, vocabulary.special_ids());
  }
  return heddle::make_sequence_pack(sequences,
                                    config.model.is_decoder_only() ? heddle::Side::target : heddle::Side::source);
}

/// A batch of one pack, whose loss is divided by the tokens to predict: RepeatedPack counts all rows.
class OnePack final : public heddle::MicroBatchSource {
 public:
  OnePack(heddle::Pack pack, bool source) : pack_(std::move(pack)), source_(source) {}

  std::int64_t count() const override { return 1; }
  heddle::BatchTokens tokens() const override {
    auto const ids = heddle::to_host<std::int32_t>((source_ ? pack_.source_output : pack_.target_output).id);
    return {.target = std::ranges::count_if(ids, [](std::int32_t id) { return id >= 0; }), .all = std::ssize(ids)};
  }
  heddle::Pack micro_batch(std::int64_t /*index*/) const override { return pack_; }

 private:
  heddle::Pack pack_;
  bool source_;  ///< its rows predict, of an encoder-only model
};

/// Tensors of MODEL's names and shapes, of which one, or none, has numbers; all others are 0.
class OneTensor final : public heddle::ForeignTensors {
 public:
  explicit OneTensor(heddle::ForeignTensors const& of) : of_(of) {}

  std::map<std::string, heddle::ForeignTensor> const& tensors() const override { return of_.tensors(); }
  void read(std::string const& name, IndexRange const& elements, std::span<float> into) const override {
    std::fill(into.begin(), into.end(), name == chosen ? 1.F : 0.F);
    if (name == chosen && numbered) {
      std::iota(into.begin(), into.end(), static_cast<float>(elements.begin));
    }
  }

  std::string chosen;
  bool numbered = false;  ///< elements have their index, else 1

 private:
  heddle::ForeignTensors const& of_;
};

/// An element of a parameter is `scale` times an element of MODEL's tensor, plus `added`.
struct Origin {
  Parameter const* parameter;
  std::size_t ours;
  std::size_t theirs;
  double scale;
  double added;
};

/// The import as a linear map, found by importing tensors that have ones and indices: it knows nothing of the kinds of
/// changes that tables of families have. Its transpose takes gradients to the model that was imported.
class ImportMap {
 public:
  ImportMap(heddle::ForeignTensors const& model, heddle::ExchangedModel const& exchanged,
            heddle::ParameterSet const& parameters)
      : model_(model) {
    OneTensor one(model);
    std::vector<heddle::StreamedTensor> tensors;
    for (Parameter const& parameter : parameters.all()) {
      tensors.push_back({parameter.spec.name, parameter.global_shape().to_vector()});
    }
    heddle::ImportedTensors imported(one, exchanged, tensors);
    auto const import = [&](std::size_t index, std::string const& chosen, bool numbered) {
      one.chosen = chosen;
      one.numbered = numbered;
      auto const elements = parameters.all()[index].global_shape().size();
      std::vector<float> values(static_cast<std::size_t>(elements));
      imported.receive({index, 0, {0, elements}}, values);
      return values;
    };
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      auto const added = import(index, "", false);
      for (auto const& [name, tensor] : model.tensors()) {
        auto const ones = import(index, name, false);
        if (ones == added) {
          continue;
        }
        auto const places = import(index, name, true);
        for (std::size_t element = 0; element < ones.size(); ++element) {
          double const zero = added[element];
          double const scale = ones[element] - zero;
          if (scale != 0) {
            auto const place = static_cast<std::size_t>(std::llround((places[element] - zero) / scale));
            origins_[name].push_back({&parameters.all()[index], element, place, scale, zero});
          }
        }
      }
    }
  }

  /// Writes MODEL's tensors of which parameters were made: `change(into, ours, origin)` for each of their elements,
  /// where `ours` is the element of value or gradient. Elements without a parameter are 0, or keep their values.
  template <class Change>
  void write(std::filesystem::path const& directory, heddle::Tensor Parameter::*member, bool keep,
             Change const& change) const {
    heddle::SafetensorsWriter::Tensors tensors;
    for (auto const& [name, origins] : origins_) {
      tensors.emplace_back(name, heddle::ForeignTensor{model_.tensors().at(name).shape, "float32"});
    }
    heddle::SafetensorsWriter writer(directory, tensors);
    for (auto const& [name, origins] : origins_) {
      std::int64_t const elements = model_.tensors().at(name).elements();
      std::vector<float> made(static_cast<std::size_t>(elements));
      if (keep) {
        model_.read(name, {0, elements}, made);
      }
      Parameter const* parameter = nullptr;
      std::vector<float> values;
      for (Origin const& origin : origins) {
        if (origin.parameter != parameter) {
          parameter = origin.parameter;
          values = heddle::to_host<float>(parameter->*member);
        }
        change(made.at(origin.theirs), values.at(origin.ours), origin);
      }
      writer.write(made);
    }
    writer.finish();
  }

 private:
  heddle::ForeignTensors const& model_;
  std::map<std::string, std::vector<Origin>> origins_;  ///< by their tensors; those of a parameter follow each other
};

void write_first_step(ImportMap const& map, std::filesystem::path const& out, bool gradients) {
  if (gradients) {
    map.write(out / "gradients", &Parameter::gradient, false, [](float& theirs, float ours, Origin const& origin) {
      theirs += static_cast<float>(ours * origin.scale);
    });
  } else {
    map.write(out / "parameters", &Parameter::value, true, [](float& theirs, float ours, Origin const& origin) {
      theirs = static_cast<float>((ours - origin.added) / origin.scale);
    });
  }
}

int run(std::vector<std::string> const& arguments) {
  std::filesystem::path const theirs = arguments.at(1);
  heddle::TrainedModelOptions options;
  options.checkpoint = arguments.at(0);
  options.overrides = {arguments.begin() + 4, arguments.end()};
  heddle::Runtime runtime;
  auto const opened = heddle::open_checkpoints(options);
  heddle::Checkpoint const& checkpoint = opened.checkpoints.front();
  heddle::Config config = heddle::stored_config(checkpoint, options.overrides);
  heddle::Registries registries;
  heddle::register_everything({}, registries, runtime.execution());
  heddle::resolve_rules(config.optimizer, registries.kernels, registries.schedules);
  heddle::Vocabulary const vocabulary = checkpoint.contents().vocabulary();
  heddle::ParallelState const parallel;
  heddle::TrainingEngine engine(
      {.config = config,
       .registries = registries,
       .parallel = parallel,
       .execution = runtime.execution(),
       .vocabulary = {vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()}});
  for (Parameter const& parameter : engine.parameters().all()) {
    heddle::copy_from_host(parameter.value,
                           checkpoint.read({parameter.spec.name, heddle::value_key, parameter.slice.ranges()}).data());
  }
  engine.parameters().bump_versions();
  std::ifstream file(theirs / "config.json");
  boost::json::object keys = boost::json::parse(std::string(std::istreambuf_iterator<char>(file), {})).as_object();
  heddle::Family const& family = heddle::family_of(keys);
  heddle::SafetensorsFiles const tensors = heddle::SafetensorsFiles::open(theirs);
  heddle::complete_config(family, keys, tensors);
  ImportMap const map(tensors, {family, config.model, keys}, engine.parameters());
  bool const encoder = !config.model.is_encoder_decoder() && !config.model.is_decoder_only();
  OnePack const batch(read_batch(config, vocabulary), encoder);
  for (std::int64_t step = 0; step < std::stoll(arguments.at(3)); ++step) {
    std::cout << fmt::format("{:.9g}\n", engine.accumulate(batch, step));
    if (step == 0) {
      write_first_step(map, arguments.at(2), true);
    }
    engine.update(config.optimizer.learning_rate, step + 1);
    if (step == 0) {
      write_first_step(map, arguments.at(2), false);
    }
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::cerr << "usage: bench_model_gradients RUN MODEL OUT STEPS [KEY=VALUE...] < BATCH > LOSSES\n";
    return 64;
  }
  try {
    return run({arguments + 1, arguments + count});
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
