#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/sample_source.hpp>

namespace heddle {

std::unique_ptr<SampleSource> samples_for(ModelConfig const& model, Dataset const& dataset) {
  if (model.stacks.size() > 1) {
    return std::make_unique<DatasetSamples>(dataset);
  }
  if (stack_kind(model.stacks.front()).predicts) {
    return std::make_unique<TargetSamples>(dataset);
  }
  throw ConfigError(
      fmt::format("{} = {} has no decoder, and a dataset of pairs has no tokens for the encoder to predict; "
                  "add \"decoder\"",
                  model.place("stacks"), to_toml(OptionValue(model.stacks))));
}

}  // namespace heddle
