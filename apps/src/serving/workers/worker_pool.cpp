#include "serving/workers/worker_pool.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <heddle/core/base/error.hpp>
#include <utility>

#include "run/directory/warning.hpp"
#include "run/processes/forked_process.hpp"

namespace heddle {

namespace {

using PoolClock = std::chrono::steady_clock;
using PoolError = boost::system::error_code;

/// Whoever waits for a text; null if nobody does.
std::shared_ptr<TranslationReceiver> receiver_of(ServedText const& text) {
  auto const request = text.request.lock();
  return request ? request->receiver.lock() : nullptr;
}

}  // namespace

struct WorkerPool::Pooled {
  Pooled(boost::asio::io_context& context, int worker_number, ForkedProcess const& started)
      : number(worker_number),
        process(started.process),
        socket(context, boost::asio::local::stream_protocol(), started.socket) {}

  int number;
  pid_t process;
  boost::asio::local::stream_protocol::socket socket;
  bool is_ready = false;
  PoolClock::time_point since = PoolClock::now();
  PoolClock::time_point heard = since;            ///< or was given a text while it had none
  std::map<std::int64_t, ServedText> texts = {};  ///< by numbers
  std::int64_t work = 0;
  std::string received = {};
  std::array<char, std::size_t{1} << 16> bytes = {};
  std::string to_send = {}, sending = {};
};

WorkerPool::WorkerPool(boost::asio::io_context& context, Options options, RequestQueue& queue, ServingMetrics& metrics)
    : context_(context),
      options_(std::move(options)),
      queue_(queue),
      metrics_(metrics),
      workers_(static_cast<std::size_t>(options_.count)) {
  for (int number = 0; number < options_.count; ++number) {
    start(number);
  }
}

WorkerPool::~WorkerPool() {
  std::vector<pid_t> processes;
  for (PooledPointer const& worker : workers_) {
    if (worker) {
      processes.push_back(worker->process);
    }
  }
  kill_processes(processes);
}

void WorkerPool::start(int number) {
  ForkedProcess const started = fork_process([&](int socket) {
    // A terminal sends them to all processes; the server decides when its workers end.
    for (int const signal : {SIGTERM, SIGINT, SIGHUP}) {
      ::signal(signal, SIG_IGN);
    }
    options_.body(socket);
  });
  PooledPointer const worker = std::make_shared<Pooled>(context_, number, started);
  workers_[static_cast<std::size_t>(number)] = worker;
  receive(worker);
}

void WorkerPool::start_again(int number) {
  try {
    start(number);
  } catch (Error const& error) {
    report_on_stderr(fmt::format("worker {}: {}; it is tried again", number, error.what()));
    start_later(number);
  }
}

void WorkerPool::start_later(int number) {
  auto const timer = std::make_shared<boost::asio::steady_timer>(context_, std::chrono::seconds(1));
  timer->async_wait([this, timer, number](PoolError) { start_again(number); });
}

WorkerPool::PooledPointer WorkerPool::with_room() const {
  PooledPointer found;
  for (PooledPointer const& worker : workers_) {
    bool const room = worker && worker->is_ready && 4 * worker->work < 5 * options_.batch_tokens;
    if (room && (!found || worker->work < found->work)) {
      found = worker;
    }
  }
  return found;
}

void WorkerPool::give() {
  while (PooledPointer const worker = with_room()) {
    std::optional<ServedText> const text = queue_.next();
    if (!text) {
      return;
    }
    give(worker, *text);
  }
}

void WorkerPool::give(PooledPointer const& worker, ServedText const& text) {
  auto const request = text.request.lock();
  if (worker->texts.empty()) {
    worker->heard = PoolClock::now();
  }
  std::int64_t const number = next_number_++;
  worker->work += text.work;
  worker->to_send += to_bytes(WorkerMessage::text, number, text_bytes(request->options, request->lines[text.line]));
  worker->texts[number] = text;
  send(worker);
}

void WorkerPool::cancel(std::shared_ptr<TranslationRequest const> const& request) {
  for (PooledPointer const& worker : workers_) {
    if (!worker) {
      continue;
    }
    for (auto const& [number, text] : worker->texts) {
      if (text.is_of(request)) {
        worker->to_send += to_bytes(WorkerMessage::cancel, number, "");
      }
    }
    send(worker);
  }
}

void WorkerPool::send(PooledPointer const& worker) {
  if (!worker->sending.empty() || worker->to_send.empty()) {
    return;
  }
  worker->sending.swap(worker->to_send);
  boost::asio::async_write(worker->socket, boost::asio::buffer(worker->sending),
                           [this, worker](PoolError problem, std::size_t) {
                             worker->sending.clear();
                             if (!problem) {  // otherwise the end of the worker is received
                               send(worker);
                             }
                           });
}

void WorkerPool::receive(PooledPointer const& worker) {
  worker->socket.async_read_some(boost::asio::buffer(worker->bytes),
                                 [this, worker](PoolError problem, std::size_t count) {
                                   if (problem == boost::asio::error::operation_aborted) {
                                     return;
                                   }
                                   if (problem) {
                                     report_end(worker);
                                     return;
                                   }
                                   worker->heard = PoolClock::now();
                                   worker->received.append(worker->bytes.data(), count);
                                   take_messages(worker->received, [&](auto... message) { take(worker, message...); });
                                   give();
                                   receive(worker);
                                 });
}

void WorkerPool::take(PooledPointer const& worker, WorkerMessage message, std::int64_t number, std::string_view bytes) {
  switch (message) {
    case WorkerMessage::models:
      worker->is_ready = true;
      if (auto const report = std::exchange(options_.ready, nullptr)) {
        report(std::string(bytes));
      }
      break;
    case WorkerMessage::cannot_open:
      if (options_.ready) {
        throw Error(std::string(bytes), static_cast<ExitCode>(number));
      }
      report_on_stderr(std::string(bytes));
      break;
    case WorkerMessage::growing: {
      auto const found = worker->texts.find(number);
      auto const receiver = found == worker->texts.end() ? nullptr : receiver_of(found->second);
      if (receiver) {
        receiver->growing(found->second.line, bytes);
      }
      break;
    }
    case WorkerMessage::finished:
    case WorkerMessage::refused:
    case WorkerMessage::failed:
    case WorkerMessage::cancelled:
      end_text(worker, message, number, bytes);
      break;
    case WorkerMessage::text:
    case WorkerMessage::cancel:
    case WorkerMessage::alive:
      break;
  }
}

void WorkerPool::end_text(PooledPointer const& worker, WorkerMessage message, std::int64_t number,
                          std::string_view bytes) {
  auto const node = worker->texts.extract(number);
  if (node.empty()) {
    return;
  }
  ServedText const& text = node.mapped();
  worker->work -= text.work;
  auto const receiver = receiver_of(text);
  if (message == WorkerMessage::finished) {
    ++metrics_.finished_texts;
    if (receiver) {
      receiver->finished(text.line, std::string(bytes));
    }
  } else if (receiver) {
    receiver->failed(HttpError(message == WorkerMessage::refused ? 400 : 500, std::string(bytes)));
  }
}

void WorkerPool::report_end(PooledPointer const& worker) {
  std::string const how = wait_for_end(worker->process);
  bool const was_ready = worker->is_ready;
  PoolError ignored;
  worker->socket.close(ignored);
  workers_[static_cast<std::size_t>(worker->number)] = nullptr;
  if (options_.ready) {
    throw Error("a worker {} before it was ready", how);
  }
  report_on_stderr(fmt::format("worker {} (process {}) {}; {} texts that it had fail; it is started again",
                               worker->number, worker->process, how, worker->texts.size()));
  ++metrics_.restarted_workers;
  for (auto const& [number, text] : worker->texts) {
    if (auto const receiver = receiver_of(text)) {
      receiver->failed(HttpError(500, "the process that translated ended; try again"));
    }
  }
  if (was_ready && PoolClock::now() - worker->since > std::chrono::seconds(1)) {
    start_again(worker->number);
  } else {
    start_later(worker->number);
  }
}

void WorkerPool::kill_unresponsive() {
  for (PooledPointer const& worker : workers_) {
    if (worker && !worker->texts.empty() && PoolClock::now() - worker->heard > options_.unresponsive) {
      report_on_stderr(
          fmt::format("worker {} (process {}) is unresponsive; it is killed", worker->number, worker->process));
      ::kill(worker->process, SIGKILL);
    }
  }
}

std::int64_t WorkerPool::texts() const {
  std::int64_t texts = 0;
  for (PooledPointer const& worker : workers_) {
    texts += worker ? std::ssize(worker->texts) : 0;
  }
  return texts;
}

std::int64_t WorkerPool::ready() const {
  return std::ranges::count_if(workers_, [](PooledPointer const& worker) { return worker && worker->is_ready; });
}

}  // namespace heddle
