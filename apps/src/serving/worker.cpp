#include "serving/worker.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <deque>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <list>
#include <map>

#include "inference/translation.hpp"
#include "report/json_text.hpp"
#include "serving/translation_request.hpp"
#include "serving/worker_message.hpp"
#include "supervision/forked_process.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;
using Kind = WorkerMessage::Kind;
using SearchOptions = ServedOptions::Search;

/// Messages of the command line name its options.
std::string for_client(std::string message) {
  boost::replace_all(message, "--source-language", "source_language");
  boost::replace_all(message, "--target-language", "target_language");
  return message;
}

/// A result as a client gets it: {"translations": [{"text": …}, …]}, the best first.
std::string result_json(TrainedModel const& model, GeneratedLine const& line, bool scores) {
  json::array translations;
  for (Translation const& translation : translations_of(model, line)) {
    json::object& entry = translations.emplace_back(json::object{{"text", translation.text}}).get_object();
    if (scores) {
      entry["score"] = translation.score;
    }
  }
  json::object result{{"translations", std::move(translations)}};
  if (line.encoded.cut_from > 0) {
    result["truncated"] = {{"tokens", line.encoded.cut_from}, {"kept", line.encoded.tokens->size()}};
  }
  return json_text(result);
}

/// Follows the best hypothesis of each text as it grows.
class GrowingTexts final : public SearchObserver {
 public:
  using Grow = std::function<void(std::int64_t number, std::vector<std::int32_t> const& tokens)>;
  explicit GrowingTexts(Grow grow) : grow_(std::move(grow)) {}

  void extended(SearchStep const& step) override {
    Hypotheses& live = live_[step.number];
    if (live.empty()) {
      live.emplace_back();
    }
    Hypotheses next;
    for (SearchStep::Extension const& extension : step.extensions) {
      if (extension.fate == SearchStep::Fate::live) {
        next.push_back(live.at(extension.parent));
        next.back().push_back(extension.token);
      }
    }
    live = std::move(next);
    if (!live.empty()) {
      grow_(step.number, live.front());
    }
  }
  void forget(std::int64_t number) { live_.erase(number); }

 private:
  using Hypotheses = std::vector<std::vector<std::int32_t>>;
  Grow grow_;
  std::map<std::int64_t, Hypotheses> live_;
};

struct ComputedText {
  GeneratedLine line;
  bool scores = false;
};

/// Texts that are computed together.
struct Batch {
  SearchOptions search;
  TrainedModel* model = nullptr;
  std::unique_ptr<GrowingTexts> observer = {};
  std::unique_ptr<Generation> generation = {};
  std::map<std::int64_t, ComputedText> texts = {};  ///< by numbers
};

class Worker {
 public:
  Worker(int socket, ServedModels const& models, WorkerOptions const& options)
      : socket_(socket), models_(models), options_(options) {}

  void run() {
    send(Kind::models, 0, models_.describe());
    while (receive()) {
      enter();
      step();
    }
  }

 private:
  struct WaitingText {
    WorkerMessage message;
    Clock::time_point since;
  };
  /// As many caches as batches are kept.
  static constexpr std::size_t max_batches = 4;

  bool computes() const {
    return std::ranges::any_of(batches_, [](Batch const& batch) { return !batch.texts.empty(); });
  }

  void send(Kind kind, std::int64_t number, std::string_view bytes) {
    send_to_parent(socket_, to_bytes(kind, number, bytes));
    spoke_ = Clock::now();
  }

  /// Takes what has arrived, and waits for it where there is nothing to compute; false where the socket is closed.
  bool receive() {
    bool const idle = waiting_.empty() && !computes();
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, idle ? -1 : 0) <= 0) {
      return true;
    }
    std::array<char, std::size_t{1} << 16> bytes{};
    ssize_t const read = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    received_.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
    while (auto message = take_message(received_)) {
      waiting_.push_back({std::move(*message), Clock::now()});
    }
    return true;
  }

  /// Gives waiting texts to their batches, in order: a text whose batch has no place waits, and all after it, so that
  /// none waits forever. While others are computed they wait for each other, within the latency budget.
  void enter() {
    if (waiting_.empty() || (computes() && Clock::now() - waiting_.front().since < options_.latency_budget)) {
      return;
    }
    while (!waiting_.empty()) {
      std::int64_t const number = waiting_.front().message.number;
      try {
        if (!enter(waiting_.front().message)) {
          return;
        }
      } catch (UsageError const& error) {
        send(Kind::refused, number, for_client(error.what()));
      } catch (std::exception const& error) {
        send(Kind::failed, number, error.what());
      }
      waiting_.pop_front();
    }
  }

  /// Returns false if the text must wait for a batch to end.
  bool enter(WorkerMessage const& message) {
    std::size_t const end = message.bytes.find('\n');
    ServedOptions const options = served_options_of(std::string_view(message.bytes).substr(0, end));
    TrainedModel& model = models_.find(options.search.model, options.search.adapter);
    model.choose_languages({options.source_language, options.target_language});
    SourceLine line{.text = message.bytes.substr(end + 1), .number = message.number};
    EncodedLine encoded = encode_source(model, line.text);
    GeneratedLine const nothing{line, {}};
    if (!encoded.tokens) {
      send(Kind::finished, message.number, result_json(model, nothing, options.scores));
      return true;
    }
    Batch* const batch = batch_for(options.search, model);
    if (batch == nullptr) {
      return false;
    }
    batch->generation->add(message.number, *encoded.tokens, encoded.start);
    batch->texts[message.number] = {{std::move(line), std::move(encoded)}, options.scores};
    return true;
  }

  /// The batch of these options; null if there are too many others that compute.
  Batch* batch_for(SearchOptions const& search, TrainedModel& model) {
    auto found = std::ranges::find(batches_, search, &Batch::search);
    if (found == batches_.end()) {
      if (batches_.size() == max_batches) {
        auto const idle = std::ranges::find_if(batches_, [](Batch const& batch) { return batch.texts.empty(); });
        if (idle == batches_.end()) {
          return nullptr;
        }
        batches_.erase(idle);
      }
      Batch batch{search, &model};
      GenerationOptions options{.beam_size = search.beam_size,
                                .n_best = search.n_best,
                                .max_length = search.max_length,
                                .length_penalty = search.length_penalty,
                                .batch_tokens = options_.batch_tokens};
      if (search.stream) {
        batch.observer = std::make_unique<GrowingTexts>([this, &model](std::int64_t number, auto const& tokens) {
          send(Kind::growing, number, json_quoted(model.vocabulary().target.decode(tokens)));
        });
        options.observer = batch.observer.get();
      }
      batch.generation = model.generation(options);
      found = batches_.insert(batches_.end(), std::move(batch));
    }
    batches_.splice(batches_.end(), batches_, found);  // the one that was used longest ago is the first to be erased
    return &*found;
  }

  void step() {
    if (Clock::now() - spoke_ > std::chrono::seconds(1)) {
      send(Kind::alive, 0, "");
    }
    for (auto batch = batches_.begin(); batch != batches_.end();) {
      auto const next = std::next(batch);
      if (!batch->texts.empty()) {
        step(batch);
      }
      batch = next;
    }
  }

  void step(std::list<Batch>::iterator batch) {
    try {
      for (Generated& generated : batch->generation->step()) {
        auto const found = batch->texts.find(generated.number);
        found->second.line.hypotheses = std::move(generated.hypotheses);
        send(Kind::finished, generated.number, result_json(*batch->model, found->second.line, found->second.scores));
        batch->texts.erase(found);
        if (batch->observer) {
          batch->observer->forget(generated.number);
        }
      }
    } catch (Error const& error) {  // a number is not finite
      for (auto const& [number, text] : batch->texts) {
        send(Kind::failed, number, error.what());
      }
      batches_.erase(batch);
    }
  }

  int socket_;
  ServedModels const& models_;
  WorkerOptions options_;
  std::string received_;
  std::deque<WaitingText> waiting_;
  std::list<Batch> batches_;
  Clock::time_point spoke_ = Clock::now();
};

}  // namespace

void run_worker(int socket, ServedModels const& models, WorkerOptions const& options) {
  Worker(socket, models, options).run();
}

}  // namespace heddle
