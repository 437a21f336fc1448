#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/http/access.hpp"
#include "serving/http/text_results.hpp"
#include "serving/requests/http_answer.hpp"
#include "serving/requests/limits.hpp"
#include "serving/requests/metrics.hpp"
#include "serving/workers/request_queue.hpp"
#include "serving/workers/worker_pool.hpp"

namespace heddle {

class Connection;

/// A server, as its connections share it.
struct Served {
  ServingLimits const& limits;
  Access const& access;
  RequestQueue& queue;
  WorkerPool& workers;
  ServingMetrics& metrics;
  std::string models = {};      ///< the answer of /v1/models
  bool stopping = false;        ///< requests that run are finished, others refused
  std::int64_t body_bytes = 0;  ///< of requests that are read or run
  std::set<std::shared_ptr<Connection>> connections = {};
};

/// A client's connection: reads one request after the other, and answers each before it reads the next. It lives until
/// it is closed; a time limit holds at each moment.
class Connection final : public TranslationReceiver, public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, Served& served);

  void start();
  /// The server stops: a request that runs is the last.
  void stop();
  /// Whether a request is computed, or its answer not yet sent.
  bool has_request() const { return phase_ == Phase::computing || phase_ == Phase::writing; }

  void growing(std::size_t line, std::string_view json) override;
  void finished(std::size_t line, std::string json) override;
  void failed(HttpError const& error) override;

 private:
  using Code = boost::system::error_code;
  enum class Phase { reading, computing, writing, lingering, closed };

  void set_deadline(std::chrono::milliseconds time);
  void deadline_passed();
  void read();
  void header_read(Code const& problem);
  void reserve_body();
  void read_body();
  void read_failed(Code const& problem);
  void body_read(Code const& problem);
  HttpAnswer answer_to_get() const;
  void translate();
  void watch();
  void client_ended(std::weak_ptr<TranslationRequest const> const& request);
  void complete();
  void end_request();
  void answer(HttpAnswer const& answer, AfterAnswer after);
  void refuse(HttpError const& error, AfterAnswer after = AfterAnswer::close);
  void send_event(std::string_view name, std::string_view data);
  void send(std::string_view bytes);
  void flush();
  void sent();
  void linger();
  void discard();
  void close();

  boost::asio::ip::tcp::socket socket_;
  Served& served_;
  boost::asio::steady_timer timer_;
  Phase phase_ = Phase::reading;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::string path_ = "other";
  std::chrono::steady_clock::time_point began_ = {};
  std::int64_t reserved_ = 0;  ///< of Served::body_bytes
  AfterAnswer after_ = AfterAnswer::keep;
  std::shared_ptr<TranslationRequest const> request_;  ///< that runs
  TextResults results_{{}};
  std::vector<std::string> answers_;  ///< results of texts
  std::string to_send_, sending_;
  std::size_t discarded_ = 0;
};

}  // namespace heddle
