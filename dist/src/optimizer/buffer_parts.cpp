#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>

namespace heddle {

namespace {

/// Parts begin on cache lines, as parameters do.
constexpr std::int64_t alignment_elements = 16;

std::int64_t rounded_up(std::int64_t size, std::int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

/// Makes one range of each parameter of several stages, and one of all parameters between two of them.
std::vector<IndexRange> segments_of(std::vector<PlacedParameter> const& parameters) {
  std::vector<IndexRange> segments;
  bool joins = false;
  for (PlacedParameter const& parameter : parameters) {
    if (joins && !parameter.of_several_stages) {
      segments.back().end = parameter.place.end;
    } else {
      segments.push_back(parameter.place);
    }
    joins = !parameter.of_several_stages;
  }
  return segments;
}

std::vector<PlacedParameter> placed_parameters(ParameterSet const& parameters) {
  std::vector<PlacedParameter> placed;
  for (Parameter const& parameter : parameters.all()) {
    placed.push_back({parameter.place, parameter.spec.stages.size() > 1});
  }
  return placed;
}

}  // namespace

BufferParts::BufferParts(ParameterSet const& parameters, std::int64_t bucket_elements, int ranks)
    : BufferParts(placed_parameters(parameters), bucket_elements, ranks) {}

BufferParts::BufferParts(std::vector<PlacedParameter> const& parameters, std::int64_t bucket_elements, int ranks)
    : ranks_(ranks) {
  if (bucket_elements < 1) {
    throw Error(fmt::format("a gradient bucket of {} elements; at least 1 is needed", bucket_elements));
  }
  std::int64_t const divisible = alignment_elements * ranks;
  std::int64_t const step = rounded_up(bucket_elements, divisible);
  for (IndexRange const& segment : segments_of(parameters)) {
    std::int64_t const end = segment.begin + rounded_up(segment.count(), divisible);
    for (std::int64_t begin = segment.begin; begin < end; begin += step) {
      buckets_.push_back({begin, std::min(begin + step, end)});
    }
  }
}

IndexRange BufferParts::part(IndexRange const& bucket, int rank) const {
  std::int64_t const count = bucket.count() / ranks_;
  return {bucket.begin + rank * count, bucket.begin + (rank + 1) * count};
}

std::vector<IndexRange> BufferParts::parts_of(int rank) const {
  std::vector<IndexRange> parts;
  for (IndexRange const& bucket : buckets_) {
    parts.push_back(part(bucket, rank));
  }
  return parts;
}

std::vector<IndexRange> intersection(std::vector<IndexRange> const& left, std::vector<IndexRange> const& right) {
  std::vector<IndexRange> both;
  auto one = left.begin();
  auto other = right.begin();
  while (one != left.end() && other != right.end()) {
    IndexRange const common{std::max(one->begin, other->begin), std::min(one->end, other->end)};
    if (common.begin < common.end) {
      both.push_back(common);
    }
    one->end < other->end ? ++one : ++other;
  }
  return both;
}

bool is_frozen(ParameterSet const& parameters, IndexRange const& range) {
  bool holds = false;
  for (Parameter const& parameter : parameters.all()) {
    IndexRange const elements = elements_of(parameter);
    if (range.begin < elements.end && elements.begin < range.end) {
      if (!parameter.rule.frozen) {
        return false;
      }
      holds = true;
    }
  }
  return holds;
}

bool is_split(ShardSpec const& shard) {
  return shard.axis >= 0 && shard.mesh_axis == MeshAxis::tensor;
}

bool counts_here(ParameterSpec const& spec, Mesh const& mesh) {
  if (!is_split(spec.shard) && mesh.coordinate(MeshAxis::tensor) != 0) {
    return false;
  }
  return spec.stages.empty() || spec.stages.front() == mesh.coordinate(MeshAxis::pipeline);
}

IndexRange elements_of(Parameter const& parameter) {
  return {parameter.place.begin, parameter.place.begin + parameter.local_shape.size()};
}

std::string describe(Parameter const& parameter, IndexRange const& elements) {
  IndexRange const all = elements_of(parameter);
  return elements == all ? parameter.spec.name
                         : fmt::format("{}'s elements {} to {}", parameter.spec.name, elements.begin - all.begin,
                                       elements.end - all.begin - 1);
}

}  // namespace heddle
