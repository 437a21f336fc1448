#include "corpus/rank_workers.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <limits>
#include <optional>
#include <span>

namespace heddle {
namespace {

constexpr int chunk_tag = 1;
constexpr int result_tag = 2;

/// The element type that every communicator moves.
using Words = std::vector<std::int32_t>;

Tensor tensor_of(Words& words) {
  return Tensor::borrow(words.data(), DType::int32, {std::ssize(words)}, MemorySpace::host);
}

std::int32_t length_of(std::string const& text) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw DataError("a chunk has more than 2 GiB; give a smaller --window");
  }
  return static_cast<std::int32_t>(text.size());
}

/// A text on its way to a rank: a message with its number of bytes, and one with its bytes.
class OutgoingText {
 public:
  OutgoingText(Communicator const& world, std::string const& text, int to, int tag)
      : length_{length_of(text)}, words_((text.size() + 3) / 4 + 1) {
    std::ranges::copy(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(words_)).begin());
    header_ = world.start_send(tensor_of(length_), to, tag);
    body_ = world.start_send(tensor_of(words_), to, tag);
  }

  bool progress() { return header_.progress() && body_.progress(); }
  void wait() {
    header_.wait();
    body_.wait();
  }

 private:
  Words length_, words_;
  Transfer header_, body_;  // after what they send: they are destroyed first
};

/// Texts that come from a rank, one after the other.
class IncomingTexts {
 public:
  IncomingTexts(Communicator const& world, int from, int tag) : world_(world), from_(from), tag_(tag) { start(); }

  /// Returns true if a text is complete.
  bool progress() {
    if (!transfer_.progress()) {
      return false;
    }
    if (words_.empty()) {
      start_body();
      return transfer_.progress();
    }
    return true;
  }

  /// Waits for the next text.
  std::string take() {
    transfer_.wait();
    if (words_.empty()) {
      start_body();
      transfer_.wait();
    }
    std::string text(static_cast<std::size_t>(length_.front()), '\0');
    std::copy_n(std::as_bytes(std::span(words_)).begin(), text.size(), std::as_writable_bytes(std::span(text)).begin());
    words_.clear();
    return text;
  }
  /// Starts to receive the next text, after take().
  void start() { transfer_ = world_.start_receive(tensor_of(length_), from_, tag_); }

 private:
  void start_body() {
    words_.resize((static_cast<std::size_t>(length_.front()) + 3) / 4 + 1);
    transfer_ = world_.start_receive(tensor_of(words_), from_, tag_);
  }

  Communicator world_;
  int from_;
  int tag_;
  Words length_{0}, words_;
  Transfer transfer_;
};

/// Computes a chunk with the ranks of a group, whose other ranks are in serve_chunks.
ChunkResult compute_in_group(RankGroups const& groups, ComputeChunk const& compute, std::string const& chunk,
                             std::function<void()> const& pause) {
  return compute(chunk_of(broadcast_text(groups.group, chunk)), pause);
}

}  // namespace

/// The first rank of another group.
class RankWorkers::Leader {
 public:
  Leader(Communicator const& world, int rank) : world_(world), rank_(rank) {}

  std::size_t chunks() const { return chunks_; }
  void give(std::string const& chunk) {
    sent_.push_back(std::make_unique<OutgoingText>(world_, chunk, rank_, chunk_tag));
    if (++chunks_ == 1) {
      results_ = std::make_unique<IncomingTexts>(world_, rank_, result_tag);
    }
  }
  /// Moves messages; returns a result that is complete.
  std::optional<ChunkResult> progress() {
    while (!sent_.empty() && sent_.front()->progress()) {
      sent_.pop_front();
    }
    if (chunks_ == 0 || !results_->progress()) {
      return std::nullopt;
    }
    std::optional<ChunkResult> result = result_of(results_->take());
    if (--chunks_ > 0) {
      results_->start();
    }
    return result;
  }
  /// Sends a last chunk, of nothing.
  void finish() {
    sent_.push_back(std::make_unique<OutgoingText>(world_, "", rank_, chunk_tag));
    for (auto const& text : sent_) {
      text->wait();
    }
  }

 private:
  Communicator world_;
  int rank_;
  std::size_t chunks_ = 0;  ///< that it has and has not returned
  std::deque<std::unique_ptr<OutgoingText>> sent_;
  std::unique_ptr<IncomingTexts> results_;
};

RankWorkers::RankWorkers(RankGroups groups, ComputeChunk compute)
    : groups_(std::move(groups)), compute_(std::move(compute)) {
  for (int rank = groups_.group.size(); rank < groups_.world.size(); rank += groups_.group.size()) {
    others_.push_back(std::make_unique<Leader>(groups_.world, rank));
  }
}

RankWorkers::~RankWorkers() = default;

bool RankWorkers::wants_chunk() const {
  return own_.empty() ||
         std::ranges::any_of(others_, [](auto const& each) { return each->chunks() < max_worker_chunks; });
}

void RankWorkers::give(Chunk chunk) {
  auto const other = std::ranges::min_element(others_, {}, [](auto const& each) { return each->chunks(); });
  if (other == others_.end() || (own_.empty() && (*other)->chunks() > 0)) {
    own_.push_back(std::move(chunk));
  } else {
    (*other)->give(to_bytes(chunk));
  }
}

void RankWorkers::progress() {
  for (auto const& other : others_) {
    while (std::optional<ChunkResult> result = other->progress()) {
      results_.push_back(std::move(*result));
    }
  }
}

ChunkResult RankWorkers::take(std::function<void()> const& refill) {
  for (progress(); results_.empty(); progress()) {
    refill();
    if (!own_.empty()) {
      std::string const chunk = to_bytes(own_.front());
      results_.push_back(compute_in_group(groups_, compute_, chunk, [&] {
        progress();
        refill();
      }));
      own_.pop_front();
    }
  }
  ChunkResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void RankWorkers::finish() {
  for (auto const& other : others_) {
    other->finish();
  }
  broadcast_text(groups_.group, "");
}

void serve_chunks(RankGroups const& groups, ComputeChunk const& compute) {
  std::unique_ptr<IncomingTexts> chunks;
  std::unique_ptr<OutgoingText> sent;
  if (groups.leads()) {
    chunks = std::make_unique<IncomingTexts>(groups.world, 0, chunk_tag);
  }
  while (true) {
    std::string const chunk = broadcast_text(groups.group, groups.leads() ? chunks->take() : "");
    if (chunk.empty()) {
      break;
    }
    if (groups.leads()) {
      chunks->start();
    }
    auto const pause = [&] {
      if (groups.leads()) {
        chunks->progress();
      }
      if (sent) {
        sent->progress();
      }
    };
    ChunkResult const result = compute(chunk_of(chunk), pause);
    if (groups.leads()) {
      if (sent) {
        sent->wait();
      }
      sent = std::make_unique<OutgoingText>(groups.world, to_bytes(result), 0, result_tag);
    }
  }
  if (sent) {
    sent->wait();
  }
}

}  // namespace heddle
