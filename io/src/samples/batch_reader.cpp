#include <algorithm>
#include <bit>
#include <chrono>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "parallel/run_collectively.hpp"

namespace heddle {

namespace {

using Message = std::vector<std::int32_t>;

/// Appends a side: each field as the number of its elements and their bits.
void put(Message& message, SideFields const& side) {
  message.insert(message.end(), {side.used ? 1 : 0, side.predicts ? 1 : 0});
  SideFields::for_each_field([&](auto field, SideFields::Each /*each*/, auto missing) {
    static_assert(sizeof(missing) == sizeof(std::int32_t));
    message.push_back(static_cast<std::int32_t>((side.*field).size()));
    std::ranges::transform(side.*field, std::back_inserter(message),
                           [](auto element) { return std::bit_cast<std::int32_t>(element); });
  });
}

/// Takes what `put` wrote off the front of a message.
void take(std::span<std::int32_t const>& message, SideFields& side) {
  side.used = message[0] != 0;
  side.predicts = message[1] != 0;
  message = message.subspan(2);
  SideFields::for_each_field([&](auto field, SideFields::Each /*each*/, auto missing) {
    auto const elements = message.subspan(1, static_cast<std::size_t>(message.front()));
    (side.*field).resize(elements.size());
    std::ranges::transform(elements, (side.*field).begin(),
                           [](std::int32_t bits) { return std::bit_cast<decltype(missing)>(bits); });
    message = message.subspan(1 + elements.size());
  });
}

}  // namespace

BatchReader::BatchReader(BatchPlanner planner, MicroBatchCut const& cut, Communicator group, Group kind)
    : planner_(std::move(planner)), cut_(cut), group_(std::move(group)), for_all_(kind == Group::of_all) {
  batch_.context = cut.context;
  batch_.corpora = std::ssize(planner_.mixture().corpora());
  batch_.content.progress = planned();
}

BatchReader::~BatchReader() = default;

BatchReader::Progress BatchReader::planned() const {
  return {planner_.cursor(), planner_.epochs(), planner_.corpus_epochs()};
}

void BatchReader::seek(MixtureCursor const& cursor, bool next_stage) {
  on_rank_0(group_, [&] {
    thread_.reset();
    planner_.seek(cursor);
    if (next_stage) {
      planner_.end_stage();
    }
    batch_.content.progress = planned();
    batch_.content.head = place();
  });
  batch_.content.head = broadcast_value(group_, batch_.content.head);
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

bool BatchReader::await_next(std::function<bool()> const& stop) {
  constexpr std::chrono::milliseconds between_questions{20};
  read_ahead();
  bool stopped = false;
  while (group_.rank() == 0 && thread_ && !stopped && !thread_->done(between_questions)) {
    stopped = stop();
  }
  return !broadcast_value(group_, stopped);
}

void BatchReader::read() {
  GlobalBatch const whole = planner_.next();
  ahead_.corpora.clear();
  std::vector<std::int64_t> corpus_tokens(planner_.mixture().corpora().size());
  if (corpus_tokens.size() > 1) {
    for (SampleId const& sample : whole.samples) {
      ahead_.corpora.push_back(sample.corpus);
      corpus_tokens[static_cast<std::size_t>(sample.corpus)] += planner_.mixture().predicted(sample);
    }
  }
  std::vector<PackFields>& into = ahead_.micro_batches;
  std::size_t read = 0;
  ahead_.counts.clear();
  MicroBatchCut cut = cut_;
  for (int rank = 0; rank < (for_all_ ? cut_.data.ranks : 1); ++rank) {
    cut.data.rank = for_all_ ? rank : cut_.data.rank;
    SampledMicroBatches const batch(planner_.mixture(), whole, cut);
    ahead_.counts.push_back(batch.count());
    into.resize(std::max(into.size(), read + static_cast<std::size_t>(batch.count())));
    for (std::int64_t index = 0; index < batch.count(); ++index) {
      batch.read(index, into[read++]);
    }
  }
  ahead_.head = place();
  ahead_.head.micro_batches = ahead_.counts.front();
  ahead_.head.tokens = whole.tokens;
  ahead_.progress = planned();
  ahead_.progress.corpus_tokens = std::move(corpus_tokens);
}

void BatchReader::share() {
  Head& head = batch_.content.head;
  std::vector<PackFields>& micro_batches = batch_.content.micro_batches;
  if (group_.rank() == 0) {
    message_.clear();
    if (batch_.corpora > 1) {
      std::vector<std::int32_t> const& corpora = batch_.content.corpora;
      message_.push_back(static_cast<std::int32_t>(corpora.size()));
      message_.insert(message_.end(), corpora.begin(), corpora.end());
    }
    std::size_t index = 0;
    for (std::int64_t const count : batch_.content.counts) {  // each data rank's, after their number and size
      std::size_t const start = message_.size();
      message_.insert(message_.end(), {static_cast<std::int32_t>(count), 0});
      for (std::int64_t own = 0; own < count; ++own, ++index) {
        put(message_, micro_batches[index].source);
        put(message_, micro_batches[index].target);
      }
      message_[start + 1] = static_cast<std::int32_t>(message_.size() - start);
    }
    head.message_size = std::ssize(message_);
  }
  head = broadcast_value(group_, head);
  message_.resize(static_cast<std::size_t>(head.message_size));
  Shape const shape{head.message_size};
  group_.broadcast(Tensor::borrow(message_.data(), DType::int32, shape, MemorySpace::host), 0);
  if (group_.rank() == 0) {
    return;
  }
  std::span<std::int32_t const> rest(message_);
  if (batch_.corpora > 1) {
    auto const corpora = rest.subspan(1, static_cast<std::size_t>(rest.front()));
    batch_.content.corpora.assign(corpora.begin(), corpora.end());
    rest = rest.subspan(1 + corpora.size());
  }
  for (int rank = 0; for_all_ && rank < cut_.data.rank; ++rank) {
    rest = rest.subspan(static_cast<std::size_t>(rest[1]));
  }
  head.micro_batches = rest[0];
  rest = rest.subspan(2);
  micro_batches.resize(std::max(micro_batches.size(), static_cast<std::size_t>(head.micro_batches)));
  for (std::size_t index = 0; index < static_cast<std::size_t>(head.micro_batches); ++index) {
    take(rest, micro_batches[index].source);
    take(rest, micro_batches[index].target);
  }
}

}  // namespace heddle
