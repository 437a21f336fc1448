#include "block_pipeline.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parallel/message_values.hpp>
#include <heddle/core/parallel/text_messages.hpp>
#include <mutex>
#include <optional>
#include <thread>

#include "parallel/run_collectively.hpp"

namespace heddle {
namespace {

constexpr int block_tag = 1;
constexpr int result_tag = 2;
/// The blocks that a thread has at a time: the one that it encodes, and others, so that it need not wait.
constexpr std::size_t blocks_for_thread = 4;
/// More blocks are read only while those in memory have less text than this for each thread.
constexpr std::size_t bytes_for_thread = std::size_t{1} << 20;

}  // namespace

struct BlockPipeline::Block {
  std::int64_t number = 0;
  LineBlock lines = {};
  EncodedBlock encoded = {};
  std::atomic<bool> done = false;
};

/// Encoders of this process: threads of their own, and the one of the thread that makes this object.
class BlockPipeline::Threads {
 public:
  Threads(PrepareOptions const& options, Vocabulary const& vocabulary, int threads) : fields_(options) {
    for (int thread = 0; thread < threads; ++thread) {
      encoders_.emplace_back(options, vocabulary, fields_);
    }
    for (std::size_t thread = 1; thread < encoders_.size(); ++thread) {
      others_.emplace_back([this, &encoder = encoders_[thread]] { serve(encoder); });
    }
  }
  Threads(Threads const&) = delete;
  Threads& operator=(Threads const&) = delete;
  ~Threads() {
    std::lock_guard const lock(mutex_);
    stopped_ = true;
    given_.notify_all();
  }

  std::size_t size() const { return encoders_.size(); }
  std::size_t waiting() {
    std::lock_guard const lock(mutex_);
    return waiting_.size();
  }
  void give(Block& block) {
    std::lock_guard const lock(mutex_);
    waiting_.push_back(&block);
    given_.notify_one();
  }
  /// Encodes a block in this thread; false if none is waiting.
  bool help() {
    std::unique_lock lock(mutex_);
    if (waiting_.empty()) {
      return false;
    }
    encode(encoders_.front(), lock);
    return true;
  }
  /// Waits until the block is done, for at most this time.
  void wait(Block const& block, std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    done_.wait_for(lock, time, [&] { return block.done.load(); });
  }
  /// Forgets the blocks that no thread has begun, and waits for the others.
  void drop() {
    std::unique_lock lock(mutex_);
    waiting_.clear();
    done_.wait(lock, [&] { return busy_ == 0; });
  }

 private:
  void serve(BlockEncoder& encoder) {
    std::unique_lock lock(mutex_);
    while (true) {
      given_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      if (stopped_) {
        return;
      }
      encode(encoder, lock);
    }
  }
  void encode(BlockEncoder& encoder, std::unique_lock<std::mutex>& lock) {
    Block& block = *waiting_.front();
    waiting_.pop_front();
    ++busy_;
    lock.unlock();
    encoder.encode(block.lines, block.encoded);
    lock.lock();
    --busy_;
    block.done = true;
    done_.notify_all();
  }

  GivenFields fields_;
  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<Block*> waiting_;
  std::size_t busy_ = 0;
  bool stopped_ = false;
  std::deque<BlockEncoder> encoders_;
  std::deque<BackgroundThread> others_;  // after all that they use: their destructors wait for them
};

/// A rank that encodes blocks for rank 0.
class BlockPipeline::OtherRank {
 public:
  OtherRank(Communicator const& world, int rank, int threads)
      : world_(world), rank_(rank), threads_(static_cast<std::size_t>(threads)) {}

  std::size_t threads() const { return threads_; }
  std::size_t blocks() const { return blocks_.size(); }
  void give(Block& block) {
    MessageWriter message;
    message.add(block.number);
    message.add(block.lines);
    send(std::move(message).bytes());
    blocks_.push_back(&block);
    if (blocks_.size() == 1) {
      results_ ? results_->start() : void(results_.emplace(world_, rank_, result_tag));
    }
  }
  /// Moves messages and takes the results that have come.
  void progress() {
    while (!sent_.empty() && sent_.front()->progress()) {
      sent_.pop_front();
    }
    while (!blocks_.empty() && results_->progress()) {
      std::string const bytes = results_->take();
      MessageReader message(bytes);
      std::int64_t number = 0;
      message.take(number);
      auto const found = std::ranges::find(blocks_, number, &Block::number);
      message.take((*found)->encoded);
      message.finish();
      (*found)->done = true;
      blocks_.erase(found);
      if (!blocks_.empty()) {
        results_->start();
      }
    }
  }
  void end() {
    send("");
    for (auto const& text : sent_) {
      text->wait();
    }
  }

 private:
  void send(std::string const& text) {
    sent_.push_back(std::make_unique<OutgoingText>(world_, text, rank_, block_tag));
  }

  Communicator world_;
  int rank_;
  std::size_t threads_;
  std::deque<Block*> blocks_;  ///< that it has and has not returned
  std::deque<std::unique_ptr<OutgoingText>> sent_;
  std::optional<IncomingTexts> results_;
};

/// One pass over a text.
class BlockPipeline::Run {
 public:
  Run(BlockPipeline& pipeline, LineBlockReader& reader) : pipeline_(pipeline), reader_(reader) {
    for (auto const& other : pipeline_.others_) {
      threads_ += other->threads();
    }
  }
  Run(Run const&) = delete;
  Run& operator=(Run const&) = delete;
  /// After an error no thread may use what this object has. The other ranks end with the job.
  ~Run() { pipeline_.threads_->drop(); }

  void encode_all(Finish const& finish) {
    do {
      for (auto const& other : pipeline_.others_) {
        other->progress();
      }
      if (!unfinished_.empty() && unfinished_.front()->done) {
        unfinished_.front()->encoded.require_valid();
        finish(unfinished_.front()->encoded);
        bytes_ -= unfinished_.front()->lines.bytes();
        spare_.push_back(std::move(unfinished_.front()));
        unfinished_.pop_front();
      } else if (!read() && !unfinished_.empty() && !pipeline_.threads_->help()) {
        bool const alone = pipeline_.others_.empty();
        pipeline_.threads_->wait(*unfinished_.front(), std::chrono::microseconds(alone ? 1'000'000 : 200));
      }
    } while (more_ || !unfinished_.empty());
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  /// Reads a block, and gives it to whoever has the fewest for each thread; false at the end of the text, and while
  /// enough blocks are in memory.
  bool read() {
    std::size_t const max_blocks = threads_ == 1 ? 1 : blocks_for_thread * threads_;
    if (!more_ || unfinished_.size() >= max_blocks || (bytes_ > bytes_for_thread * threads_ && !unfinished_.empty())) {
      return false;
    }
    std::unique_ptr<Block> block = spare_.empty() ? std::make_unique<Block>() : std::move(spare_.back());
    if (!spare_.empty()) {
      spare_.pop_back();
    }
    try {
      more_ = reader_.next(block->lines);
    } catch (...) {  // after the errors of lines before it
      error_ = std::current_exception();
      more_ = false;
    }
    if (!more_) {
      return false;
    }
    block->number = number_++;
    block->done = false;
    bytes_ += block->lines.bytes();
    Block& given = *unfinished_.emplace_back(std::move(block));
    OtherRank* idle = nullptr;
    double least = static_cast<double>(pipeline_.threads_->waiting()) / static_cast<double>(pipeline_.threads_->size());
    for (auto const& other : pipeline_.others_) {
      double const load = static_cast<double>(other->blocks()) / static_cast<double>(other->threads());
      if (load < least || (load == 0 && idle == nullptr)) {
        idle = other.get();
        least = load;
      }
    }
    idle == nullptr ? pipeline_.threads_->give(given) : idle->give(given);
    return true;
  }

  BlockPipeline& pipeline_;
  LineBlockReader& reader_;
  std::size_t threads_ = pipeline_.threads_->size();  ///< of all ranks
  std::deque<std::unique_ptr<Block>> unfinished_;     ///< in their order
  std::vector<std::unique_ptr<Block>> spare_;         ///< to be used again
  std::size_t bytes_ = 0;                             ///< of the unfinished ones' text
  std::int64_t number_ = 0;
  bool more_ = true;
  std::exception_ptr error_;
};

BlockPipeline::BlockPipeline(PrepareOptions const& options, Vocabulary const& vocabulary, int threads,
                             Communicator const& world)
    : threads_(std::make_unique<Threads>(options, vocabulary, threads)) {
  auto const of_ranks = gather_values(world, threads);
  for (int rank = 1; rank < world.size(); ++rank) {
    others_.push_back(std::make_unique<OtherRank>(world, rank, of_ranks[static_cast<std::size_t>(rank)]));
  }
}

BlockPipeline::~BlockPipeline() = default;

void BlockPipeline::run(LineBlockReader& reader, Finish const& finish) {
  Run(*this, reader).encode_all(finish);
}

void BlockPipeline::end() {
  std::ranges::for_each(others_, &OtherRank::end);
}

void serve_blocks(PrepareOptions const& options, Vocabulary const& vocabulary, int threads, Communicator const& world) {
  using Block = BlockPipeline::Block;
  std::deque<std::unique_ptr<Block>> blocks;
  // This thread moves messages, which needs little time where there are others to encode.
  BlockPipeline::Threads encoders(options, vocabulary, threads == 1 ? 1 : threads + 1);
  gather_values(world, threads);
  IncomingTexts incoming(world, 0, block_tag);
  std::deque<std::unique_ptr<OutgoingText>> sent;
  for (bool more = true; more || !blocks.empty() || !sent.empty();) {
    while (more && incoming.progress()) {
      std::string const bytes = incoming.take();
      more = !bytes.empty();
      if (more) {
        MessageReader message(bytes);
        Block& block = *blocks.emplace_back(std::make_unique<Block>());
        message.take(block.number);
        message.take(block.lines);
        message.finish();
        encoders.give(block);
        incoming.start();
      }
    }
    std::erase_if(blocks, [&](auto const& block) {
      if (block->done) {
        MessageWriter message;
        message.add(block->number);
        message.add(block->encoded);
        sent.push_back(std::make_unique<OutgoingText>(world, std::move(message).bytes(), 0, result_tag));
      }
      return block->done.load();
    });
    while (!sent.empty() && sent.front()->progress()) {
      sent.pop_front();
    }
    if (encoders.size() > 1 || !encoders.help()) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

}  // namespace heddle
