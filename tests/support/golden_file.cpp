#include "golden_file.hpp"

#include <fstream>
#include <heddle/core/base/error.hpp>
#include <sstream>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {

namespace {

std::vector<std::int32_t> read_ids(std::istringstream& line) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; line >> id;) {
    ids.push_back(id);
  }
  return ids;
}

std::vector<double> read_values(std::string const& line) {
  std::istringstream stream(line);
  std::vector<double> values;
  for (std::string word; stream >> word;) {
    values.push_back(std::stod(word));
  }
  return values;
}

}  // namespace

GoldenFile::GoldenFile(std::string const& name) {
  std::string const path = std::string(HEDDLE_TEST_DATA) + "/" + name + ".txt";
  std::ifstream file(path);
  if (!file) {
    throw Error("cannot read " + path);
  }
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind;
    std::string key;
    line >> kind;
    if (kind == "setting") {
      line >> key >> settings_[key];
    } else if (kind == "model") {
      keys_ += text.substr(kind.size()) + "\n";
    } else if (kind == "source") {
      pairs_.push_back({static_cast<std::int32_t>(pairs_.size()), read_ids(line), {}});
    } else if (kind == "target") {
      pairs_.back().target = read_ids(line);
    } else if (kind == "tensor") {
      line >> key;
      std::getline(file, text);
      tensors_[key] = read_values(text);
    }
  }
}

ModelConfig GoldenFile::model() const {
  if (!keys_.empty()) {
    return parse_config("[model]\n" + keys_, "golden file").model;
  }
  ModelConfig config;
  config.encoder.layers = integer("encoder_layers");
  config.decoder.layers = integer("decoder_layers");
  config.d_model = integer("d_model");
  config.d_ff = integer("d_ff");
  config.heads = integer("heads");
  config.max_length = integer("max_length");
  config.norm = settings_.at("norm") == "pre" ? NormPlacement::pre : NormPlacement::post;
  config.activation = settings_.at("activation");
  config.positions = settings_.at("positions") == "learned" ? Positions::learned : Positions::sinusoidal;
  config.tie_embeddings = integer("tied") != 0;
  config.dropout = 0;
  return config;
}

OptimizerConfig GoldenFile::optimizer() const {
  OptimizerConfig config;
  config.name = settings_.at("optimizer");
  config.learning_rate = number("learning_rate");
  config.weight_decay = number("weight_decay");
  config.clip_norm = number("clip_norm");
  return config;
}

VocabularySizes GoldenFile::vocabulary() const {
  return {integer("source_vocabulary"), integer("target_vocabulary"), integer("joint") != 0};
}

Pack GoldenFile::pack() const {
  auto const id = [&](char const* setting) { return static_cast<std::int32_t>(integer(setting)); };
  return make_pack(pairs_,
                   {.source = {.end = id("source_end_id")}, .target = {.begin = id("begin_id"), .end = id("end_id")}});
}

std::vector<std::string> GoldenFile::names_after(std::string const& prefix) const {
  std::vector<std::string> names;
  for (auto const& [name, values] : tensors_) {
    if (name.starts_with(prefix)) {
      names.push_back(name.substr(prefix.size()));
    }
  }
  return names;
}

double golden_value(std::string const& name, std::int64_t index) {
  std::uint32_t mixed = 0x811C9DC5U;
  for (char const letter : name) {
    mixed = (mixed ^ static_cast<unsigned char>(letter)) * 0x01000193U;
  }
  mixed += static_cast<std::uint32_t>(index) * 0x9E3779B1U;
  mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6DU;
  mixed = (mixed ^ (mixed >> 12)) * 0x297A2D39U;
  mixed ^= mixed >> 15;
  return mixed / 2147483648.0 - 1;
}

void set_golden_values(ParameterSet& parameters) {
  for (Parameter const& parameter : parameters.all()) {
    std::string const& name = parameter.spec.key();
    bool const norm_weight = name.ends_with("norm.weight");
    double const scale = name.ends_with("weight") && !norm_weight ? 0.5 : 0.2;
    std::vector<double> values;
    for (std::int64_t index = 0; index < parameter.value.size(); ++index) {
      values.push_back(scale * golden_value(name, parameter.spec.initializer_offset + index) + (norm_weight ? 1 : 0));
    }
    copy_from_doubles(parameter.value, values);
  }
  parameters.bump_versions();
}

std::map<std::string, std::vector<double>> by_golden_name(ParameterSet const& parameters,
                                                          Tensor Parameter::*tensor_of) {
  std::map<std::string, std::vector<double>> values;
  for (Parameter const& parameter : parameters.all()) {
    std::vector<double>& whole = values[parameter.spec.key()];
    if (std::ssize(whole) != parameter.spec.initializer_offset) {
      throw Error(parameter.spec.name + ": the parts of " + parameter.spec.key() + " do not follow one another");
    }
    std::vector<double> const part = heddle::values(parameter.*tensor_of);
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return values;
}

}  // namespace heddle
