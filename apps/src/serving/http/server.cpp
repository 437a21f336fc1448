#include "serving/http/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>

#include "run/directory/warning.hpp"
#include "run/processes/child_process.hpp"
#include "run/processes/forked_process.hpp"
#include "serving/http/connection.hpp"
#include "serving/workers/worker_message.hpp"

namespace heddle {
namespace {

using boost::asio::ip::tcp;

/// A worker's main function. `shared` are the models, if they were opened before the process was copied.
void worker_main(int socket, ServedModels const* shared, ServerOptions const& options) {
  try {
    std::unique_ptr<ServedModels> const own =
        shared == nullptr ? std::make_unique<ServedModels>(options.models) : nullptr;
    run_worker(socket, shared == nullptr ? *own : *shared, options.worker);
  } catch (std::exception const& error) {
    auto const* const known = dynamic_cast<Error const*>(&error);
    auto const code = static_cast<std::int64_t>(known == nullptr ? ExitCode::failure : known->code());
    send_to_parent(socket, to_bytes(WorkerMessage::cannot_open, code, error.what()));
  }
}

/// Accepts connections until a signal.
class Server {
 public:
  explicit Server(ServerOptions const& options)
      : options_(options),
        access_(options.access),
        acceptor_(context_),
        signals_(context_),
        retry_timer_(context_),
        queue_(options.limits.queue) {
    listen();
    if (!kernels_have_threads()) {  // otherwise the worker opens them, because threads are not copied
      models_ = std::make_unique<ServedModels>(options.models);
      models_->warm_up();
    }
    choose_signals();
    workers_ = std::make_unique<WorkerPool>(
        context_,
        WorkerPool::Options{.count = processes_for(options.threads),
                            .body = [this](int socket) { worker_main(socket, models_.get(), options_); },
                            .batch_tokens = options.worker.batch_tokens,
                            .unresponsive = options.limits.timeout,
                            .ready = [this](std::string described) { start(std::move(described)); }},
        queue_, metrics_);
    served_ = std::make_unique<Served>(Served{options_.limits, access_, queue_, *workers_, metrics_});
  }

  void run() {
    signals_.async_wait([this](boost::system::error_code problem, int signal) { stop(problem, signal); });
    context_.run();
    served_->connections.clear();
    workers_.reset();
    if (!ended_well_) {
      throw Error("requests that ran were not finished");
    }
  }

 private:
  /// Until here a signal ends the process at once. SIGHUP stops the server as SIGTERM does, because the terminal that
  /// it runs in is closed, unless `nohup` has it ignored. A message that nobody reads must not end requests either.
  void choose_signals() {
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    if (!is_ignored(SIGHUP)) {
      signals_.add(SIGHUP);
    }
    std::signal(SIGPIPE, SIG_IGN);
  }

  /// Clients that come before the models are open wait.
  void listen() {
    tcp::endpoint const place(access_.address(), options_.port);
    try {
      acceptor_.open(place.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      acceptor_.bind(place);
      acceptor_.listen();
    } catch (boost::system::system_error const& error) {
      throw UsageError("cannot listen on {} port {}: {}; --port chooses another one", access_.address().to_string(),
                       options_.port, error.code().message());
    }
  }

  void start(std::string const& described) {
    boost::json::object models = boost::json::parse(described).as_object();
    models["max_beam_size"] = options_.limits.beam_size;
    served_->models = boost::json::serialize(models) + "\n";
    tcp::endpoint const place = acceptor_.local_endpoint();
    bool const six = place.address().is_v6();
    std::cout << fmt::format("heddle: serving on http://{}{}{}:{}/\n", six ? "[" : "", place.address().to_string(),
                             six ? "]" : "", place.port())
              << std::flush;
    accept();
  }

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code problem, tcp::socket socket) {
      if (problem == boost::asio::error::operation_aborted || served_->stopping) {
        return;
      }
      if (problem) {  // no more files, for example
        retry_timer_.expires_after(std::chrono::milliseconds(100));
        retry_timer_.async_wait([this](boost::system::error_code aborted) { aborted ? void() : accept(); });
        return;
      }
      if (std::ssize(served_->connections) >= options_.limits.connections) {
        refuse(socket);
      } else {
        auto const connection = std::make_shared<Connection>(std::move(socket), *served_);
        served_->connections.insert(connection);
        connection->start();
      }
      accept();
    });
  }

  void refuse(tcp::socket& socket) {
    ++metrics_.refused_connections;
    HttpAnswer const answer = answer_of(HttpError(503, "too many connections; try again later"));
    std::string const bytes = header_of(answer, AfterAnswer::close) + answer.body;
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(boost::asio::buffer(bytes), ignored);
  }

  void stop(boost::system::error_code problem, int signal) {
    if (problem) {
      return;
    }
    if (served_->stopping) {
      finish(false);
      return;
    }
    report_on_stderr(
        fmt::format("SIG{}: finishing {} texts", ::sigabbrev_np(signal), queue_.size() + workers_->texts()));
    served_->stopping = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    auto const open = served_->connections;
    for (auto const& connection : open) {
      connection->stop();
    }
    signals_.async_wait([this](boost::system::error_code again, int number) { stop(again, number); });
    end_ = std::chrono::steady_clock::now() + options_.limits.stop;
    wait_for_connections();
  }

  void wait_for_connections() {
    if (served_->connections.empty() || std::chrono::steady_clock::now() > end_) {
      finish(std::ranges::none_of(served_->connections, &Connection::has_request));
      return;
    }
    retry_timer_.expires_after(std::chrono::milliseconds(20));
    retry_timer_.async_wait([this](boost::system::error_code aborted) { aborted ? void() : wait_for_connections(); });
  }

  void finish(bool well) {
    ended_well_ = well;
    context_.stop();
  }

  ServerOptions const& options_;
  std::unique_ptr<ServedModels> models_;
  boost::asio::io_context context_{1};
  Access access_;
  tcp::acceptor acceptor_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer retry_timer_;
  std::chrono::steady_clock::time_point end_ = {};
  RequestQueue queue_;
  ServingMetrics metrics_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<Served> served_;
  bool ended_well_ = false;
};

}  // namespace

void serve(ServerOptions const& options) {
  Server(options).run();
}

}  // namespace heddle
