#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/backoff.hpp>
#include <heddle/dist/optimizer/bucket_reduction.hpp>

namespace heddle {

namespace {

/// The number of buckets that travel at once: 64, or fewer where these would have more than 2²⁴ elements (64 MiB of
/// float32). A slow link's queues hold megabytes, and the messages that start the next transfer are queued after them:
/// only many buckets in flight keep such a link busy.
std::size_t max_at_once(BufferShards const& parts) {
  constexpr std::int64_t max_elements = std::int64_t{1} << 24;
  std::int64_t max = 64;
  for (auto const& bucket : parts.buckets()) {
    max = std::min(max, std::max<std::int64_t>(1, max_elements / bucket.range.count()));
  }
  return static_cast<std::size_t>(max);
}

}  // namespace

BucketReduction::BucketReduction(Communicator const& replicas, ParameterSet const& parameters, Execution& execution,
                                 BufferShards const& parts, bool scatter, Observe observe)
    : replicas_(replicas.after(execution)),
      parameters_(parameters),
      observe_(std::move(observe)),
      max_under_way_(max_at_once(parts)) {
  if (replicas.size() == 1) {
    return;
  }
  for (BufferShards::Bucket const& bucket : parts.buckets()) {
    DividedSection const* const section = parameters.section_of(bucket.range.begin);
    bool const summed = section != nullptr && section->divides_gradient;  // after each use, or where experts are
    if (!summed && !is_frozen(parameters, bucket.range)) {
      bool const divided = scatter && bucket.owner < 0 && parts.first_copy(bucket) == replicas.size();
      buckets_.push_back({.range = bucket.range, .own = divided ? parts.part(bucket, replicas.rank()) : IndexRange{}});
    }
  }
  auto const holds = [](Bucket const& bucket, Parameter const& parameter) {
    IndexRange const elements = elements_of(parameter);
    return bucket.range.begin < elements.end && elements.begin < bucket.range.end;
  };
  auto const& uses = parameters.uses();
  for (Bucket& bucket : buckets_) {
    auto const first = std::ranges::find_if(uses, [&](auto const* parameter) { return holds(bucket, *parameter); });
    bucket.first_use = first == uses.end() ? -1 : first - uses.begin();
  }
  std::ranges::stable_sort(buckets_, std::ranges::greater(), &Bucket::first_use);
  for (Parameter const* const parameter : uses) {
    Member& member = members_[parameter];
    if (member.uses++ == 0) {
      for (Bucket& bucket : buckets_) {
        if (holds(bucket, *parameter)) {
          member.buckets.push_back(&bucket);
        }
      }
    }
    ++member.uses_left;
    for (Bucket* const bucket : member.buckets) {
      ++bucket->uses;
      ++bucket->uses_left;
    }
  }
}

void BucketReduction::use_done(Parameter const& parameter) {
  if (buckets_.empty()) {
    return;
  }
  auto const found = members_.find(&parameter);
  if (found == members_.end() || found->second.uses_left == 0) {
    throw Error(
        "parameter {}: more layers add to its gradient than were built with it; a layer that shares "
        "a parameter calls ParameterSet::add_use when it is built",
        parameter.spec.name);
  }
  --found->second.uses_left;
  for (Bucket* const bucket : found->second.buckets) {
    --bucket->uses_left;
  }
}

bool BucketReduction::may_start() const {
  return next_ < buckets_.size() && under_way_.size() < max_under_way_ &&
         (finishing_ || buckets_[next_].uses_left == 0);
}

void BucketReduction::start(Bucket const& bucket) {
  Tensor const whole = parameters_.gradients_in(bucket.range);
  if (observe_) {
    observe_(whole);
  }
  if (bucket.own == IndexRange{}) {
    under_way_.push_back(replicas_.start_all_reduce(whole));
  } else {
    Tensor const part = parameters_.gradients_in(bucket.own);
    under_way_.push_back(replicas_.start_reduce_scatter(whole, part));
  }
}

void BucketReduction::progress() {
  std::erase_if(under_way_, [](Transfer& transfer) { return transfer.progress(); });
  while (may_start()) {
    start(buckets_[next_++]);
  }
}

void BucketReduction::finish() {
  finishing_ = true;
  for (progress(); !under_way_.empty() || next_ < buckets_.size(); progress()) {
    yield_core();
  }
  finishing_ = false;
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.uses_left = bucket.uses;
  }
  for (auto& [parameter, member] : members_) {
    member.uses_left = member.uses;
  }
}

}  // namespace heddle
