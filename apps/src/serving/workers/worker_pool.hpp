#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serving/requests/metrics.hpp"
#include "serving/workers/request_queue.hpp"
#include "serving/workers/worker_message.hpp"

namespace heddle {

/// The processes that translate the texts of a queue. Each text goes to the one with the least work. One that ends
/// fails the requests whose texts it had, and is started again.
class WorkerPool {
 public:
  struct Options {
    int count = 1;
    std::function<void(int socket)> body = {};           ///< a worker's main function
    std::int64_t batch_tokens = 4096;                    ///< of a worker: it has little more work than that at a time
    std::chrono::milliseconds unresponsive{60'000};      ///< time after which a worker that computes is taken for lost
    std::function<void(std::string models)> ready = {};  ///< called once, when the first worker is
  };
  /// Starts the workers. Throws Error if that fails.
  WorkerPool(boost::asio::io_context& context, Options options, RequestQueue& queue, ServingMetrics& metrics);
  /// Kills them.
  ~WorkerPool();
  WorkerPool(WorkerPool const&) = delete;
  WorkerPool& operator=(WorkerPool const&) = delete;

  /// Gives waiting texts to workers that have room.
  void give();
  /// Lets the workers leave the texts of a request. They count until the workers have answered.
  void cancel(std::shared_ptr<TranslationRequest const> const& request);
  /// Kills workers that have had texts and sent nothing for too long.
  void kill_unresponsive();
  /// The number of texts that workers have.
  std::int64_t texts() const;
  /// The number of workers that are ready.
  std::int64_t ready() const;

 private:
  struct Pooled;
  using PooledPointer = std::shared_ptr<Pooled>;

  void start(int number);
  void start_again(int number);
  void start_later(int number);
  PooledPointer with_room() const;
  void give(PooledPointer const& worker, ServedText const& text);
  void send(PooledPointer const& worker);
  void receive(PooledPointer const& worker);
  void take(PooledPointer const& worker, WorkerMessage message, std::int64_t number, std::string_view bytes);
  void end_text(PooledPointer const& worker, WorkerMessage message, std::int64_t number, std::string_view bytes);
  void report_end(PooledPointer const& worker);

  boost::asio::io_context& context_;
  Options options_;
  RequestQueue& queue_;
  ServingMetrics& metrics_;
  std::vector<PooledPointer> workers_;  ///< null: one that is to be started
  std::int64_t next_number_ = 0;
};

}  // namespace heddle
