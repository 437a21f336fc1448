#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// One of tests/golden/*.txt, as model.py or family.py wrote it.
class GoldenFile {
 public:
  /// "model_post_relu_sinusoidal_tied" reads model_post_relu_sinusoidal_tied.txt.
  explicit GoldenFile(std::string const& name);

  ModelConfig model() const;
  OptimizerConfig optimizer() const;
  VocabularySizes vocabulary() const;
  Pack pack() const;
  double number(std::string const& setting) const { return std::stod(settings_.at(setting)); }
  std::vector<double> const& tensor(std::string const& name) const { return tensors_.at(name); }
  /// The names of tensors that begin with `prefix`, without it.
  std::vector<std::string> names_after(std::string const& prefix) const;

 private:
  std::int64_t integer(std::string const& setting) const { return std::stoll(settings_.at(setting)); }

  std::map<std::string, std::string> settings_;
  std::string keys_;  ///< of [model], in TOML; empty: they follow from the settings
  std::vector<Sample> pairs_;
  std::map<std::string, std::vector<double>> tensors_;
};

/// The number in [-1, 1) that model.py's value_of gives.
double golden_value(std::string const& name, std::int64_t index);

/// Parameters as model.py makes them. It has matrices that Heddle projects with at once (q, k and v) as one parameter:
/// its name and the part's place in it are the initializer key and offset.
void set_golden_values(ParameterSet& parameters);

/// The elements that `tensor_of` gives for each parameter of that golden name, one after another.
std::map<std::string, std::vector<double>> by_golden_name(ParameterSet const& parameters, Tensor Parameter::*tensor_of);

}  // namespace heddle
