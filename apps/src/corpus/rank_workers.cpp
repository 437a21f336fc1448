#include "corpus/rank_workers.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parallel/text_messages.hpp>
#include <optional>

namespace heddle {
namespace {

constexpr int chunk_tag = 1;
constexpr int result_tag = 2;

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
