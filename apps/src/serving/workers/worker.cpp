#include "serving/workers/worker.hpp"

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

#include "inference/alignment.hpp"
#include "inference/translation.hpp"
#include "run/directory/json_text.hpp"
#include "run/processes/forked_process.hpp"
#include "serving/workers/growing_texts.hpp"
#include "serving/workers/translation_request.hpp"
#include "serving/workers/worker_message.hpp"

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

/// A text and its options.
struct ComputedText {
  GeneratedLine line;
  ServedOptions options;
};

/// The words between white space that are aligned: [[SOURCE, TARGET], …], both from 0. Each translation of a text has
/// such a list.
std::vector<json::array> alignments_of(ServedModel const& served, ComputedText const& text,
                                       std::vector<Translation> const& translations) {
  TrainedModel& model = *served.model;
  model.choose_languages({text.options.source_language, text.options.target_language});
  std::vector<std::int32_t> source = *text.line.encoded.tokens;
  source.erase(source.begin(), source.begin() + std::ssize(model.frame().source));
  std::vector<GivenTarget> given;
  for (Translation const& translation : translations) {
    given.push_back({source, translation.tokens});
  }
  std::vector<ForcedTarget> const forced = served.forcing->decode(model, given);
  std::vector<std::int64_t> const source_words =
      words_of(model.vocabulary().source, text.line.line.text, source.size());
  std::vector<json::array> lists(translations.size());
  for (std::size_t index = 0; index < lists.size(); ++index) {
    Alignment const words = between_words(hard_alignment(forced[index].attention, source.size()), source_words,
                                          words_of(model.vocabulary().target, translations[index]));
    std::ranges::transform(words, std::back_inserter(lists[index]), [](auto const& pair) {
      return json::array{pair.first, pair.second};
    });
  }
  return lists;
}

/// A result as a client gets it: {"translations": [{"text": …}, …]}, the best first.
std::string result_json(ServedModel const& served, ComputedText const& text) {
  auto const& [line, options] = text;
  std::vector<Translation> const found = translations_of(*served.model, line);
  bool const aligned = options.alignments && line.encoded.tokens;
  std::vector<json::array> alignments = aligned ? alignments_of(served, text, found) : std::vector<json::array>();
  json::array translations;
  for (std::size_t index = 0; index < found.size(); ++index) {
    json::object entry{{"text", found[index].text}};
    if (options.scores) {
      entry["score"] = found[index].score;
    }
    if (aligned) {
      entry["alignment"] = std::move(alignments[index]);
    }
    translations.push_back(std::move(entry));
  }
  json::object result{{"translations", std::move(translations)}};
  if (line.encoded.cut_from > 0) {
    result["truncated"] = {{"tokens", line.encoded.cut_from}, {"kept", line.encoded.tokens->size()}};
  }
  return json_text(result);
}

/// Texts that are computed together.
struct Batch {
  SearchOptions search;
  ServedModel model = {};
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
  /// Each batch keeps caches of keys and values for as many tokens as batch_tokens allows.
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
      if (message->kind == Kind::cancel) {
        cancel(message->number);
      } else {
        waiting_.push_back({std::move(*message), Clock::now()});
      }
    }
    return true;
  }

  /// Leaves a text, unless its result is on its way.
  void cancel(std::int64_t number) {
    auto const of_number = [&](WaitingText const& text) { return text.message.number == number; };
    bool found = std::erase_if(waiting_, of_number) > 0;
    for (Batch& batch : batches_) {
      if (batch.texts.erase(number) > 0) {
        found = true;
        batch.generation->remove(number);
        if (batch.observer) {
          batch.observer->forget(number);
        }
      }
    }
    if (found) {
      send(Kind::cancelled, number, "");
    }
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
    ServedModel const served = models_.find(options.search.model, options.search.adapter);
    served.model->choose_languages({options.source_language, options.target_language});
    SourceLine line{.text = message.bytes.substr(end + 1), .number = message.number};
    EncodedLine encoded = encode_source(*served.model, line.text);
    ComputedText text{{std::move(line), std::move(encoded)}, options};
    if (!text.line.encoded.tokens) {
      send(Kind::finished, message.number, result_json(served, text));
      return true;
    }
    Batch* const batch = batch_for(options.search, served);
    if (batch == nullptr) {
      return false;
    }
    batch->generation->add(message.number, *text.line.encoded.tokens, text.line.encoded.start);
    batch->texts[message.number] = std::move(text);
    return true;
  }

  /// The batch of these options; null if there are too many others that compute.
  Batch* batch_for(SearchOptions const& search, ServedModel const& served) {
    auto found = std::ranges::find(batches_, search, &Batch::search);
    if (found == batches_.end()) {
      if (batches_.size() == max_batches) {
        auto const idle = std::ranges::find_if(batches_, [](Batch const& batch) { return batch.texts.empty(); });
        if (idle == batches_.end()) {
          return nullptr;
        }
        batches_.erase(idle);
      }
      Batch batch{search, served};
      GenerationOptions options{.beam_size = search.beam_size,
                                .n_best = search.n_best,
                                .max_length = search.max_length,
                                .length_penalty = search.length_penalty,
                                .batch_tokens = options_.batch_tokens,
                                .forbidden = served.choices->forbidden,
                                .allow_unknown = served.choices->allow_unknown,
                                .shortlist = served.choices->shortlist};
      if (search.stream) {
        auto const grow = [this, model = served.model](std::int64_t number, GrowingTexts::Tokens const& tokens) {
          send(Kind::growing, number, json_quoted(model->vocabulary().target.decode(tokens)));
        };
        batch.observer = std::make_unique<GrowingTexts>(search.length_penalty, grow);
        options.observer = batch.observer.get();
      }
      batch.generation = served.model->generation(options);
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
        send_result(batch->model, generated.number, found->second);
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

  void send_result(ServedModel const& model, std::int64_t number, ComputedText const& text) {
    std::string result;
    try {
      result = result_json(model, text);
    } catch (ConfigError const& error) {  // the model or the build has no alignments
      send(Kind::refused, number, error.what());
      return;
    }
    send(Kind::finished, number, result);
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
