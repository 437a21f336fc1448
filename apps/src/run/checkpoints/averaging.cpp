#include "averaging.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <numeric>
#include <utility>

#include "checkpoint.hpp"

namespace heddle {

namespace {

/// Throws DataError for a parameter that only `one` has, or that has another shape in `other`.
void require_parameters(Checkpoint const& one, Checkpoint const& other) {
  for (TensorInfo const& tensor : one.tensors()) {
    bool const there = other.contains(tensor.name);
    if (!there || other.tensor(tensor.name).shape != tensor.shape) {
      throw DataError("{}: parameter {} has the shape {}; {} has {}, so that their parameters cannot be averaged",
                      one.directory().string(), tensor.name, Shape(tensor.shape).to_string(),
                      other.directory().string(),
                      there ? Shape(other.tensor(tensor.name).shape).to_string() : "no such parameter");
    }
  }
}

/// Throws unless both checkpoints are of one model: only then is the mean of their parameters one of it, too.
void require_same_model(Checkpoint const& first, Checkpoint const& other) {
  for (ConfigDifference const& difference : differences(other, stored_config(first), ResumeRule::identity)) {
    if (difference.key.starts_with("model.") && difference.key != "model.max_length") {
      throw ConfigError("{}: {} = {}; {} has {}, so that their parameters cannot be averaged",
                        other.directory().string(), difference.key, difference.before, first.directory().string(),
                        difference.after);
    }
  }
  if (other.contents().source_model != first.contents().source_model ||
      other.contents().target_model != first.contents().target_model) {
    throw DataError("{} and {} have different vocabularies; their parameters cannot be averaged",
                    other.directory().string(), first.directory().string());
  }
  require_parameters(first, other);
  require_parameters(other, first);
}

}  // namespace

AveragedModel::AveragedModel(std::vector<Checkpoint> checkpoints, std::vector<double> weights)
    : checkpoints_(std::move(checkpoints)), weights_(std::move(weights)) {
  weights_.resize(checkpoints_.size(), 1);
  for (Checkpoint const& checkpoint : std::span(checkpoints_).subspan(1)) {
    require_same_model(first(), checkpoint);
  }
}

bool AveragedModel::in_base(std::string const& name) const {
  return std::ranges::all_of(checkpoints_, [&](Checkpoint const& each) {
    return each.in_base(name) && each.contents().base == first().contents().base;
  });
}

std::vector<float> AveragedModel::read(TensorSlice const& slice) const {
  if (checkpoints_.size() == 1) {
    return first().read(slice);
  }
  std::vector<double> sums;
  std::vector<float> values;
  for (std::size_t index = 0; index < checkpoints_.size(); ++index) {
    values = checkpoints_[index].read(slice);
    sums.resize(values.size());
    std::ranges::transform(values, sums, sums.begin(), [weight = weights_[index]](float value, double sum) {
      return sum + weight * static_cast<double>(value);
    });
  }
  double const all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  std::ranges::transform(sums, values.begin(), [&](double sum) { return static_cast<float>(sum / all); });
  return values;
}

void AveragedModel::read(std::span<SliceInto const> wanted) const {
  if (checkpoints_.size() == 1) {
    return first().read(wanted);
  }
  constexpr std::int64_t max_elements = std::int64_t{1} << 20;  // beside the models that are read
  for (auto const& [slice, into] : wanted) {
    for (std::int64_t begin = 0; begin < std::ssize(into); begin += max_elements) {
      TensorSlice piece = slice;
      piece.elements = {begin, std::min(begin + max_elements, std::ssize(into))};
      std::ranges::copy(read(piece), into.begin() + begin);
    }
  }
}

MadeTensors averaged_tensors(AveragedModel const& model, DType dtype) {
  return {tensors_like(model.first(), dtype),
          [&model](StreamedTensor const& tensor, IndexRange const& elements, std::span<float> into) {
            std::ranges::copy(model.read(TensorSlice{.name = tensor.name, .elements = elements}), into.begin());
          }};
}

}  // namespace heddle
