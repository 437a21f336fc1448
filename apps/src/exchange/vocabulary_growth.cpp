#include "vocabulary_growth.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/vocabularies/added_pieces.hpp>
#include <map>
#include <utility>

#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/new_run.hpp"
#include "run/checkpoints/provenance.hpp"
#include "run/configuration/config_check.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// For each new piece the old ids of its parts.
using Parts = std::vector<std::vector<std::int32_t>>;

/// The parts of a side's new pieces and languages; none if it does not grow.
Parts parts_of(Tokenizer const& vocabulary, VocabularyGrowth const& growth, bool grows) {
  Parts parts;
  for (std::string const& piece : grows ? growth.pieces : std::vector<std::string>()) {
    parts.push_back(parts_of(vocabulary, piece));
  }
  parts.resize(parts.size() + (grows ? growth.languages.size() : 0), vocabulary.form().languages);
  return parts;
}

Tokenizer grown(Tokenizer const& vocabulary, VocabularyGrowth const& growth, bool grows) {
  return grows ? with_languages(with_pieces(vocabulary, growth.pieces), growth.languages) : vocabulary;
}

/// A checkpoint's parameters, some of them with more rows.
class GrownTensors final : public OneRankTensors {
 public:
  /// `parts` of the new rows, by the names of the parameters that have some.
  GrownTensors(Checkpoint const& checkpoint, std::map<std::string, Parts const*> const& parts)
      : checkpoint_(checkpoint) {
    tensors_ = tensors_like(checkpoint);
    for (StreamedTensor& tensor : tensors_) {
      std::vector<float>& rows = new_rows_.emplace_back();
      if (auto const grown = parts.find(tensor.name); grown != parts.end()) {
        rows = mean_rows(tensor.name, *grown->second);
        tensor.shape.front() += std::ssize(*grown->second);
      }
    }
  }

  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    std::vector<float> const& rows = new_rows_[chunk.tensor];
    std::int64_t const before = Shape(tensors_[chunk.tensor].shape).size() - std::ssize(rows);
    IndexRange const old{std::min(chunk.elements.begin, before), std::min(chunk.elements.end, before)};
    if (old.count() > 0) {
      read_elements(checkpoint_, tensors_[chunk.tensor].name, old, elements);
    }
    std::copy(rows.begin() + (std::max(chunk.elements.begin, before) - before),
              rows.begin() + (std::max(chunk.elements.end, before) - before), elements.begin() + old.count());
  }

 private:
  std::vector<float> mean_rows(std::string const& table, Parts const& parts) const {
    std::vector<float> rows;
    for (std::vector<std::int32_t> const& ids : parts) {
      std::vector<double> sum;
      for (std::int32_t const id : ids) {
        std::vector<float> const row = checkpoint_.read(TensorSlice{table, value_key, {{id, id + 1}}});
        sum.resize(row.size());
        std::ranges::transform(sum, row, sum.begin(), std::plus());
      }
      std::ranges::transform(sum, std::back_inserter(rows),
                             [&](double value) { return static_cast<float>(value / static_cast<double>(ids.size())); });
    }
    return rows;
  }

  Checkpoint const& checkpoint_;
  std::vector<std::vector<float>> new_rows_;  ///< of tensors_
};

/// The shapes of a model's parameters, by name.
std::map<std::string, Shape> shapes_of(Config const& config, Registries const& registries,
                                       VocabularySizes const& sizes) {
  std::map<std::string, Shape> shapes;
  whole_model(config, registries, sizes).for_each_parameter([&](ParameterDescription const& parameter) {
    shapes.emplace(parameter.name, parameter.placement.global_shape);
  });
  return shapes;
}

/// The names of the parameters whose first extent is the size of that side's vocabulary: they have one row more in a
/// model with one piece more.
std::vector<std::string> tables_of(Config const& config, Registries const& registries, VocabularySizes sizes,
                                   Side side) {
  auto const before = shapes_of(config, registries, sizes);
  sizes.source += side == Side::source || sizes.joint ? 1 : 0;
  sizes.target += side == Side::target || sizes.joint ? 1 : 0;
  std::vector<std::string> tables;
  for (auto const& [name, shape] : shapes_of(config, registries, sizes)) {
    std::vector<std::int64_t> grown = before.at(name).to_vector();
    if (shape == before.at(name)) {
      continue;
    }
    grown.front() += 1;
    if (!(shape == Shape(grown))) {
      throw ConfigError("parameter {} does not have its vocabulary in rows, so that it cannot get more", name);
    }
    tables.push_back(name);
  }
  return tables;
}

}  // namespace

GrownModel extend_vocabulary(Execution& execution, VocabularyGrowth const& growth) {
  auto const opened = open_checkpoints(growth.model);
  Checkpoint const& checkpoint = opened.checkpoints.front();
  PendingDirectory directory(growth.run);
  CheckpointContents contents = contents_of_new_run(growth.run, checkpoint);
  GrownModel result{.checkpoint = {}, .tables = {}, .before = checkpoint.contents().vocabulary()};
  Vocabulary const& before = result.before;
  bool const joint = before.joint();
  if (joint && !(growth.source && growth.target)) {
    throw ConfigError("source and target have one vocabulary, which grows for both: --side both");
  }
  Vocabulary const now{grown(before.source, growth, growth.source), grown(before.target, growth, growth.target)};
  Config const config = parse_config(contents.config, growth.run.string());
  Registries registries;
  PluginsConfig const plugins = trusted_plugins(config.plugins, {growth.model.plugins, growth.model.trust_plugins},
                                                checkpoint.directory().string());
  register_everything({.plugins = read_plugins(plugins), .trust_plugins = growth.model.trust_plugins}, registries,
                      execution);
  VocabularySizes const sizes{before.source.size(), before.target.size(), joint};
  Parts const source = parts_of(before.source, growth, growth.source);
  Parts const target = parts_of(before.target, growth, growth.target);
  std::map<std::string, Parts const*> tables;
  for (auto const& [side, parts] : {std::pair(Side::source, &source), {Side::target, &target}}) {
    if (!parts->empty()) {
      for (std::string const& name : tables_of(config, registries, sizes, side)) {
        // The two models of a joint vocabulary may tokenize differently.
        bool const of_target = name.starts_with("decoder.") || name.starts_with("output");
        tables[name] = joint && !of_target ? &source : parts;
      }
    }
  }
  contents.source_model = now.source.model();
  contents.target_model = now.target.model();
  if (joint) {  // other systems' files that name a vocabulary's size have one for both sides
    add_pieces(contents.origin, now.target, static_cast<std::int32_t>(target.size()));
  }
  record_pieces(contents.origin, checkpoint.directory().parent_path().parent_path(),
                std::ssize(growth.pieces) + std::ssize(growth.languages));
  GrownTensors tensors(checkpoint, tables);
  result.checkpoint = growth.run / write_new_run(directory.path(), contents, tensors);
  directory.commit();
  for (auto const& [name, parts] : tables) {
    result.tables.push_back(name);
  }
  return result;
}

}  // namespace heddle
