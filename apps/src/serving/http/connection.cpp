#include "serving/http/connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/json.hpp>
#include <heddle/io/text/bounded_json.hpp>

#include "serving/http/http_rules.hpp"
#include "serving/http/page_files.hpp"

namespace heddle {
namespace {

namespace http = boost::beast::http;

/// A client that reads a stream slowly is not sent how texts grow while this much waits for it, and is cut off when
/// results do not fit into the second bound.
constexpr std::size_t much_unsent = std::size_t{1} << 16;
constexpr std::size_t max_unsent = std::size_t{1} << 20;
/// Bytes of a refused request that are read after its answer.
constexpr std::size_t max_discarded = std::size_t{4} << 20;
constexpr std::size_t max_buffer = std::size_t{1} << 16;

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, Served& served)
    : socket_(std::move(socket)), served_(served), timer_(socket_.get_executor()), buffer_(max_buffer) {}

void Connection::start() {
  Code ignored;
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  read();
}

void Connection::stop() {
  if (phase_ == Phase::reading) {
    set_deadline(std::chrono::milliseconds(500));  // for a request that is on its way, which is then refused
  }
}

void Connection::set_deadline(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([weak = weak_from_this()](Code const& problem) {
    auto const self = weak.lock();
    if (!problem && self && self->timer_.expiry() <= std::chrono::steady_clock::now()) {
      self->deadline_passed();
    }
  });
}

void Connection::deadline_passed() {
  if (phase_ == Phase::computing) {
    served_.workers.kill_unresponsive();
    failed(HttpError(
        504, fmt::format("not translated within {} s", static_cast<double>(served_.limits.timeout.count()) / 1000)));
  } else {
    close();
  }
}

void Connection::read() {
  phase_ = Phase::reading;
  parser_.emplace();
  parser_->header_limit(ServingLimits::header_bytes);
  parser_->body_limit(static_cast<std::uint64_t>(served_.limits.body_bytes));
  path_ = "other";
  set_deadline(served_.stopping ? std::chrono::milliseconds(500) : served_.limits.client);
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](Code problem, std::size_t) { self->header_read(problem); });
}

void Connection::header_read(Code const& problem) {
  began_ = std::chrono::steady_clock::now();
  if (problem || phase_ == Phase::closed) {
    read_failed(problem);
    return;
  }
  HttpFields const& fields = parser_->get();
  path_ = served_path(fields);
  try {
    require_allowed(fields, served_.access);
    if (served_.stopping) {
      throw HttpError(503, "the server stops");
    }
    reserve_body();
  } catch (HttpError const& error) {
    // After a header with a length a body may follow, which must not be taken for the next request.
    bool const ends = fields.count(http::field::content_length) + fields.count(http::field::transfer_encoding) == 0;
    refuse(error, parser_->keep_alive() && ends ? AfterAnswer::keep : AfterAnswer::close);
    return;
  }
  if (!boost::beast::iequals(fields[http::field::expect], "100-continue")) {
    read_body();
    return;
  }
  static constexpr std::string_view proceed = "HTTP/1.1 100 Continue\r\n\r\n";
  boost::asio::async_write(
      socket_, boost::asio::buffer(proceed),
      [self = shared_from_this()](Code failure, std::size_t) { failure ? self->close() : self->read_body(); });
}

void Connection::reserve_body() {
  auto const limit = static_cast<std::uint64_t>(served_.limits.body_bytes);
  std::uint64_t const length = parser_->chunked() ? limit : parser_->content_length().value_or(0);
  if (length > limit) {
    throw HttpError(413, fmt::format("the body has more than {} bytes", limit));
  }
  reserved_ = static_cast<std::int64_t>(length);
  served_.body_bytes += reserved_;
  if (served_.body_bytes > served_.limits.all_body_bytes) {
    throw HttpError(429, "other requests fill the memory for requests; try again later");
  }
}

void Connection::read_body() {
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](Code problem, std::size_t) { self->body_read(problem); });
}

void Connection::read_failed(Code const& problem) {
  bool const of_http = problem.category() == http::make_error_code(http::error::end_of_stream).category();
  if (!of_http || problem == http::error::end_of_stream || problem == http::error::partial_message) {
    close();
  } else if (problem == http::error::body_limit) {
    refuse({413, fmt::format("the body has more than {} bytes", served_.limits.body_bytes)});
  } else if (problem == http::error::header_limit || problem == http::error::buffer_overflow) {
    refuse({431, fmt::format("the header has more than {} bytes", ServingLimits::header_bytes)});
  } else {
    refuse({400, "not a request of HTTP/1.1: " + problem.message()});
  }
}

void Connection::body_read(Code const& problem) {
  if (problem || phase_ == Phase::closed) {
    read_failed(problem);
    return;
  }
  after_ = parser_->keep_alive() ? AfterAnswer::keep : AfterAnswer::close;
  if (path_ != "/v1/translate") {
    answer(answer_to_get(), after_);
    return;
  }
  try {
    translate();
  } catch (HttpError const& error) {
    refuse(error, after_);
  }
}

HttpAnswer Connection::answer_to_get() const {
  if (path_ == "/health") {
    return {.body = served_.workers.ready() > 0 ? "{\"status\":\"ok\"}\n" : "{\"status\":\"no worker is ready\"}\n"};
  }
  if (path_ == "/v1/models") {
    return {.body = served_.models};
  }
  if (path_ == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = served_.metrics.text({std::ssize(served_.connections), served_.queue.size(),
                                          served_.workers.texts(), served_.workers.ready()})};
  }
  PageFile const& file = *std::ranges::find(page_files(), path_, &PageFile::path);
  return {.type = file.type, .body = std::string(file.text)};
}

void Connection::translate() {
  auto const request =
      std::make_shared<TranslationRequest>(parse_translation_request(parser_->get().body(), served_.limits));
  request->receiver = weak_from_this();
  results_ = TextResults(request->line_counts);
  answers_.assign(request->line_counts.size(), "");
  served_.queue.add(request);
  request_ = request;
  phase_ = Phase::computing;
  set_deadline(served_.limits.timeout);
  if (request_->options.stream) {
    after_ = AfterAnswer::close;
    send(header_of({.type = "text/event-stream; charset=utf-8"}, after_, false));
  }
  if (results_.missing() == 0) {
    complete();
  } else {
    served_.workers.give();
    watch();
  }
}

void Connection::watch() {
  using Socket = boost::asio::ip::tcp::socket;
  if (buffer_.size() > 0) {  // the next request, or a part of it
    return;
  }
  socket_.async_wait(Socket::wait_read, [self = shared_from_this(), weak = std::weak_ptr(request_)](Code problem) {
    if (!problem) {
      self->client_ended(weak);
    }
  });
}

void Connection::client_ended(std::weak_ptr<TranslationRequest const> const& request) {
  auto const running = [](Connection const& self, std::weak_ptr<TranslationRequest const> const& of) {
    return self.phase_ == Phase::computing && of.lock() == self.request_;
  };
  Code ignored;
  if (!running(*this, request) || socket_.available(ignored) > 0) {
    return;
  }
  if (parser_->get().version() < 11) {  // it cannot be asked: HTTP/1.0 has no answers before the answer
    close();
    return;
  }
  // A client that sends nothing more may wait for its answer. One that went away refuses bytes: every client of
  // HTTP/1.1 accepts these, before any answer. A stream has begun its answer, and ends where it cannot be sent.
  if (!request_->options.stream) {
    send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_error,
                     [self = shared_from_this(), request, running](Code problem) {
                       if (!problem && running(*self, request)) {
                         self->close();
                       }
                     });
}

void Connection::growing(std::size_t line, std::string_view json) {
  if (to_send_.size() > much_unsent) {
    return;
  }
  auto const [text, line_of_text, single] = results_.place(line);
  std::string const place = single ? "" : fmt::format("\"line\":{},", line_of_text);
  send_event("growing", fmt::format("{{\"index\":{},{}\"text\":{}}}", text, place, json));
}

void Connection::finished(std::size_t line, std::string json) {
  bool const streams = request_->options.stream;
  if (streams && !results_.place(line).single) {
    growing(line, TextResults::best_text(json));
  }
  if (auto result = results_.add(line, std::move(json)); result && streams) {
    send_event("result", fmt::format("{{\"index\":{},{}", result->text, std::string_view(result->json).substr(1)));
  } else if (result) {
    answers_[result->text] = std::move(result->json);
  }
  if (phase_ == Phase::computing && results_.missing() == 0) {
    complete();
  }
}

void Connection::complete() {
  if (!request_->options.stream) {
    answer({.body = fmt::format("{{\"results\":[{}]}}\n", fmt::join(answers_, ","))}, after_);
    return;
  }
  served_.metrics.count_answer(path_, 200, std::chrono::steady_clock::now() - began_);
  end_request();
  phase_ = Phase::writing;
  set_deadline(served_.limits.client);
  send_event("done", "{}");
}

void Connection::failed(HttpError const& error) {
  if (!request_->options.stream) {
    refuse(error, after_);
    return;
  }
  served_.metrics.count_answer(path_, error.status, std::chrono::steady_clock::now() - began_);
  end_request();
  phase_ = Phase::writing;
  set_deadline(served_.limits.client);
  send_event("error", fmt::format("{{\"status\":{},\"error\":{}}}", error.status, json_quoted(error.what())));
}

void Connection::end_request() {
  if (auto const request = std::exchange(request_, nullptr)) {
    served_.queue.drop(request);
    served_.workers.cancel(request);
  }
  answers_.clear();
  served_.body_bytes -= std::exchange(reserved_, 0);
}

void Connection::answer(HttpAnswer const& answer, AfterAnswer after) {
  served_.metrics.count_answer(path_, answer.status, std::chrono::steady_clock::now() - began_);
  end_request();
  phase_ = Phase::writing;
  after_ = served_.stopping ? AfterAnswer::close : after;
  set_deadline(served_.limits.client);
  std::string bytes = header_of(answer, after_);
  if (parser_->get().method() != http::verb::head) {
    bytes += answer.body;
  }
  send(bytes);
}

void Connection::refuse(HttpError const& error, AfterAnswer after) {
  answer(answer_of(error), after);
}

void Connection::send_event(std::string_view name, std::string_view data) {
  send(fmt::format("event: {}\ndata: {}\n\n", name, data));
}

void Connection::send(std::string_view bytes) {
  if (phase_ == Phase::computing && to_send_.size() + bytes.size() > max_unsent) {
    close();
    return;
  }
  to_send_ += bytes;
  flush();
}

void Connection::flush() {
  if (!sending_.empty() || to_send_.empty()) {
    return;
  }
  sending_.swap(to_send_);
  boost::asio::async_write(socket_, boost::asio::buffer(sending_),
                           [self = shared_from_this()](Code problem, std::size_t) {
                             self->sending_.clear();
                             problem ? self->close() : self->sent();
                           });
}

void Connection::sent() {
  if (!to_send_.empty()) {
    flush();
  } else if (phase_ == Phase::writing) {
    after_ == AfterAnswer::keep ? read() : linger();
  }
}

void Connection::linger() {
  // Closing at once what the client still sends to would make its system drop the answer.
  phase_ = Phase::lingering;
  set_deadline(std::chrono::seconds(1));
  Code ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  discard();
}

void Connection::discard() {
  socket_.async_read_some(buffer_.prepare(max_buffer), [self = shared_from_this()](Code problem, std::size_t bytes) {
    self->discarded_ += bytes;
    problem || self->discarded_ > max_discarded ? self->close() : self->discard();
  });
}

void Connection::close() {
  if (phase_ == Phase::closed) {
    return;
  }
  phase_ = Phase::closed;
  end_request();
  timer_.cancel();
  Code ignored;
  socket_.close(ignored);
  served_.connections.erase(shared_from_this());
}

}  // namespace heddle
