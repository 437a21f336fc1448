#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>

namespace heddle {

namespace {

/// Makes one segment of each parameter that is alone, and one of all parameters between two of them.
std::vector<PlacedParameter> segments_of(std::vector<PlacedParameter> const& parameters) {
  std::vector<PlacedParameter> segments;
  bool joins = false;
  for (PlacedParameter const& parameter : parameters) {
    bool const alone = parameter.of_several_stages || parameter.whole;
    if (joins && !alone) {
      segments.back().place.end = parameter.place.end;
    } else {
      segments.push_back(parameter);
    }
    joins = !alone;
  }
  return segments;
}

}  // namespace

std::vector<PlacedParameter> placed_parameters(ParameterSet const& parameters) {
  std::vector<PlacedParameter> placed;
  std::size_t block = 0;  // its first member
  bool whole = false;
  for (Parameter const* const parameter : parameters.trained()) {
    if (!parameter->follows) {
      block = placed.size();
      whole = false;
    }
    placed.push_back({parameter->place, parameter->spec.stages.size() > 1});
    whole = whole || parameter->updated_whole;
    for (std::size_t member = block; whole && member < placed.size(); ++member) {
      placed[member].whole = true;
    }
  }
  return placed;
}

BufferParts::BufferParts(std::vector<PlacedParameter> const& parameters, std::int64_t bucket_elements, int ranks)
    : ranks_(ranks) {
  if (bucket_elements < 1) {
    throw Error(fmt::format("a gradient bucket of {} elements; at least 1 is needed", bucket_elements));
  }
  std::int64_t const divisible = line_elements * ranks;  // parts start on cache lines, as parameters do
  std::int64_t const step = rounded_up(bucket_elements, divisible);
  std::vector<std::int64_t> owned(static_cast<std::size_t>(ranks), 0);
  for (auto const& [place, of_several_stages, whole] : segments_of(parameters)) {
    if (whole) {
      // The rank that owns least so far; of a parameter of several stages the first, as other stages have other loads.
      auto const least = of_several_stages ? owned.begin() : std::ranges::min_element(owned);
      *least += place.count();
      buckets_.push_back({place, static_cast<int>(least - owned.begin())});
      continue;
    }
    std::int64_t const end = place.begin + rounded_up(place.count(), divisible);
    for (std::int64_t begin = place.begin; begin < end; begin += step) {
      buckets_.push_back({{begin, std::min(begin + step, end)}});
    }
  }
}

IndexRange BufferParts::part(Bucket const& bucket, int rank) const {
  IndexRange const& range = bucket.range;
  if (bucket.owner >= 0) {
    return bucket.owner == rank ? range : IndexRange{range.begin, range.begin};
  }
  std::int64_t const count = range.count() / ranks_;
  return {range.begin + rank * count, range.begin + (rank + 1) * count};
}

int BufferParts::owner(std::int64_t element) const {
  auto const bucket = std::ranges::partition_point(buckets_, [=](Bucket const& b) { return b.range.end <= element; });
  return bucket->owner >= 0 ? bucket->owner
                            : static_cast<int>((element - bucket->range.begin) / (bucket->range.count() / ranks_));
}

std::vector<IndexRange> BufferParts::parts_of(int rank) const {
  std::vector<IndexRange> parts;
  for (Bucket const& bucket : buckets_) {
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
      if (!parameter.frozen()) {
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
