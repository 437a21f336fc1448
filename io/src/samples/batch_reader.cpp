#include <algorithm>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <memory>
#include <system_error>
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

BatchReader::BatchReader(BatchPlanner planner, MicroBatchCut const& cut, Communicator group)
    : planner_(std::move(planner)), cut_(cut), group_(std::move(group)) {
  batch_.context = cut.context;
  batch_.content.progress = planned();
}

BatchReader::~BatchReader() = default;

BatchReader::Progress BatchReader::planned() const {
  return {planner_.cursor(), planner_.epochs(), planner_.corpus_epochs()};
}

void BatchReader::seek(MixtureCursor const& cursor) {
  on_rank_0(group_, [&] {
    thread_.reset();
    planner_.seek(cursor);
    batch_.content.progress = planned();
  });
}

MicroBatchSource const& BatchReader::next() {
  on_rank_0(group_, [&] {
    if (thread_) {
      auto const reading = std::move(thread_);
      reading->finish();
    } else {
      read();
    }
    std::swap(batch_.content, ahead_);
  });
  if (group_.size() > 1) {
    share();
  }
  return batch_;
}

void BatchReader::read_ahead() {
  if (group_.rank() == 0 && !thread_) {
    try {
      thread_ = std::make_unique<BackgroundThread>([this] { read(); });
    } catch (std::system_error const&) {  // no more threads: `next` reads the batch
    }
  }
}

void BatchReader::read() {
  SampledMicroBatches const batch(planner_.mixture(), planner_.next(), cut_);
  std::vector<PackTokens>& into = ahead_.micro_batches;
  into.resize(std::max(into.size(), static_cast<std::size_t>(batch.count())));
  for (std::int64_t index = 0; index < batch.count(); ++index) {
    batch.read(index, into[static_cast<std::size_t>(index)]);
  }
  ahead_.head = {.micro_batches = batch.count(), .tokens = batch.tokens()};
  ahead_.progress = planned();
}

void BatchReader::share() {
  Head& head = batch_.content.head;
  std::vector<PackTokens>& micro_batches = batch_.content.micro_batches;
  if (group_.rank() == 0) {
    message_.clear();
    for (std::size_t index = 0; index < static_cast<std::size_t>(head.micro_batches); ++index) {
      put(message_, micro_batches[index].source);
      put(message_, micro_batches[index].target);
    }
    head.message_size = std::ssize(message_);
  }
  head = broadcast_value(group_, head);
  if (head.message_size == 0) {
    return;  // this data rank has no share of the batch, and an empty message has no memory to lend
  }
  message_.resize(static_cast<std::size_t>(head.message_size));
  Shape const shape{head.message_size};
  group_.broadcast(Tensor::borrow(message_.data(), DType::int32, shape, MemorySpace::host), 0);
  if (group_.rank() == 0) {
    return;
  }
  micro_batches.resize(std::max(micro_batches.size(), static_cast<std::size_t>(head.micro_batches)));
  std::span<std::int32_t const> rest(message_);
  for (std::size_t index = 0; index < static_cast<std::size_t>(head.micro_batches); ++index) {
    take(rest, micro_batches[index].source);
    take(rest, micro_batches[index].target);
  }
}

}  // namespace heddle
