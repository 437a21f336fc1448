#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>

namespace heddle {

namespace {

/// A parameter that is alone in its buckets, or all parameters between two of those.
struct Segment {
  IndexRange range;
  bool alone = false;
  bool single_owner = false;
  bool on_several_stages = false;
  int parts = 0;    ///< ranks that divide it, if it is a DividedSection
  double cost = 0;  ///< of an update
};

std::vector<Segment> segments_of(ParameterSet const& parameters) {
  std::vector<Parameter const*> const trained = parameters.trained();
  std::vector<Segment> segments;
  bool single_owner = false;  // of the block
  for (auto each = trained.begin(); each != trained.end(); ++each) {
    if (DividedSection const* const section = parameters.section_of((*each)->place.begin)) {
      if (segments.empty() || segments.back().range != section->range) {
        segments.push_back({.range = section->range, .alone = true, .parts = section->parts});
      }
      continue;
    }
    if (!(*each)->follows) {
      auto const end = std::find_if(each + 1, trained.end(), [](auto const* next) { return !next->follows; });
      single_owner = std::any_of(each, end, [](auto const* member) { return member->updated_whole(); });
    }
    bool const on_several_stages = (*each)->placement().on_several_stages();
    bool const alone = on_several_stages || single_owner;
    if (!alone && !segments.empty() && !segments.back().alone) {
      segments.back().range.end = (*each)->place.end;
    } else {
      auto const elements = static_cast<double>((*each)->place.count());
      segments.push_back({.range = (*each)->place,
                          .alone = alone,
                          .single_owner = single_owner,
                          .on_several_stages = on_several_stages,
                          .cost = elements + (*each)->matrix_cost});
    }
  }
  return segments;
}

}  // namespace

BufferShards::BufferShards(ParameterSet const& parameters, std::int64_t bucket_elements, int ranks) : ranks_(ranks) {
  if (bucket_elements < 1) {
    throw Error("a gradient bucket of {} elements; at least 1 is needed", bucket_elements);
  }
  std::int64_t const divisible = line_elements * ranks;  // parts start on cache lines, as parameters do
  std::int64_t const step = rounded_up(bucket_elements, divisible);
  std::vector<double> owned(static_cast<std::size_t>(ranks), 0);
  for (auto const& [range, alone, single_owner, on_several_stages, parts, cost] : segments_of(parameters)) {
    if (parts > 0) {
      buckets_.push_back({.range = range, .parts = parts < ranks ? parts : 0});
      continue;
    }
    if (single_owner) {
      // The rank with the least work so far; of a parameter of several stages the first, as other stages have others.
      auto const least = on_several_stages ? owned.begin() : std::ranges::min_element(owned);
      *least += cost;
      buckets_.push_back({range, static_cast<int>(least - owned.begin())});
      continue;
    }
    std::int64_t const end = range.begin + rounded_up(range.count(), divisible);
    for (std::int64_t begin = range.begin; begin < end; begin += step) {
      buckets_.push_back({{begin, std::min(begin + step, end)}});
    }
  }
}

IndexRange BufferShards::part(Bucket const& bucket, int rank) const {
  IndexRange const& range = bucket.range;
  if (bucket.owner >= 0) {
    return bucket.owner == rank ? range : IndexRange{range.begin, range.begin};
  }
  int const parts = first_copy(bucket);
  std::int64_t const count = range.count() / parts;
  int const part = rank % parts;
  return {range.begin + part * count, range.begin + (part + 1) * count};
}

std::vector<IndexRange> BufferShards::parts_of(int rank) const {
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
