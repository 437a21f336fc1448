#include <algorithm>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <utility>

#include "parallel/together.hpp"

namespace heddle {

namespace {

using Integers = std::vector<std::int32_t>;

void put(Integers& message, Integers const& integers) {
  message.push_back(static_cast<std::int32_t>(integers.size()));
  message.insert(message.end(), integers.begin(), integers.end());
}

void put(Integers& message, SideTokens const& side) {
  for (bool const flag : {side.used, side.predicts, side.prefixed}) {
    message.push_back(flag ? 1 : 0);
  }
  for (Integers const* const integers : {&side.sample, &side.length, &side.id, &side.output, &side.prefix}) {
    put(message, *integers);
  }
}

/// Takes what `put` wrote off the front of a message.
void take(std::span<std::int32_t const>& message, Integers& integers) {
  auto const count = static_cast<std::size_t>(message.front());
  auto const values = message.subspan(1, count);
  integers.assign(values.begin(), values.end());
  message = message.subspan(1 + count);
}

void take(std::span<std::int32_t const>& message, SideTokens& side) {
  side.used = message[0] != 0;
  side.predicts = message[1] != 0;
  side.prefixed = message[2] != 0;
  message = message.subspan(3);
  for (Integers* const integers : {&side.sample, &side.length, &side.id, &side.output, &side.prefix}) {
    take(message, *integers);
  }
}

}  // namespace

BatchReader::BatchReader(BatchPlanner& planner, Communicator group) : planner_(planner), group_(std::move(group)) {}

void BatchReader::seek(MixtureCursor const& cursor) {
  on_rank_0(group_, [&] { planner_.seek(cursor); });
}

MicroBatchSource const& BatchReader::next(MicroBatchCut const& cut) {
  batch_.context = cut.context;
  on_rank_0(group_, [&] { read(cut); });
  if (group_.size() > 1) {
    share();
  }
  return batch_;
}

void BatchReader::read(MicroBatchCut const& cut) {
  SampledMicroBatches const batch(planner_.mixture(), planner_.next(), cut);
  batch_.content.resize(std::max(batch_.content.size(), static_cast<std::size_t>(batch.count())));
  for (std::int64_t index = 0; index < batch.count(); ++index) {
    batch.read(index, batch_.content[static_cast<std::size_t>(index)]);
  }
  batch_.head = {.micro_batches = batch.count(), .tokens = batch.tokens()};
}

void BatchReader::share() {
  if (group_.rank() == 0) {
    message_.clear();
    for (std::size_t index = 0; index < static_cast<std::size_t>(batch_.head.micro_batches); ++index) {
      put(message_, batch_.content[index].source);
      put(message_, batch_.content[index].target);
    }
    batch_.head.message_size = std::ssize(message_);
  }
  batch_.head = broadcast_value(group_, batch_.head);
  if (batch_.head.message_size == 0) {
    return;  // this data rank has no share of the batch, and an empty message has no memory to lend
  }
  message_.resize(static_cast<std::size_t>(batch_.head.message_size));
  Shape const shape{batch_.head.message_size};
  group_.broadcast(Tensor::borrow(message_.data(), DType::int32, shape, MemorySpace::host), 0);
  if (group_.rank() == 0) {
    return;
  }
  batch_.content.resize(std::max(batch_.content.size(), static_cast<std::size_t>(batch_.head.micro_batches)));
  std::span<std::int32_t const> rest(message_);
  for (std::size_t index = 0; index < static_cast<std::size_t>(batch_.head.micro_batches); ++index) {
    take(rest, batch_.content[index].source);
    take(rest, batch_.content[index].target);
  }
}

}  // namespace heddle
