#include "serving/workers/worker.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
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
#include "serving/requests/translation_request.hpp"
#include "serving/workers/growing_texts.hpp"
#include "serving/workers/worker_message.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;
/// A text on its way through a worker.
struct ComputedText {
  ServedOptions options = {};
  ServedModel served = {};
  GeneratedLine line = {};

  std::int64_t number() const { return line.line.number; }
};

/// Lets the model take texts in the languages of the options.
void choose_languages(TrainedModel& model, ServedOptions const& options) {
  model.choose_languages({options.source_language, options.target_language}, {"source_language", "target_language"});
}

/// The words between white space that are aligned: [[SOURCE, TARGET], …], both from 0. Each translation of a text has
/// such a list.
std::vector<json::array> alignments_of(ComputedText const& text, std::vector<Translation> const& translations) {
  TrainedModel& model = *text.served.model;
  choose_languages(model, text.options);
  std::vector<std::int32_t> source = *text.line.encoded.tokens;
  source.erase(source.begin(), source.begin() + std::ssize(model.frame().source));
  std::vector<GivenTarget> given;
  for (Translation const& translation : translations) {
    given.push_back({source, translation.tokens});
  }
  std::vector<ForcedTarget> const forced = text.served.forcing->decode(model, given);
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
std::string result_json(ComputedText const& text) {
  auto const& [options, served, line] = text;
  std::vector<Translation> const found = translations_of(*served.model, line);
  bool const aligned = options.alignments && line.encoded.tokens;
  std::vector<json::array> alignments = aligned ? alignments_of(text, found) : std::vector<json::array>();
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
  ServedOptions options = {};  ///< of the first of them
  std::unique_ptr<GrowingTexts> observer = {};
  std::unique_ptr<Generation> generation = {};
  std::map<std::int64_t, ComputedText> texts = {};  ///< by numbers
};

class Worker {
 public:
  Worker(int socket, ServedModels const& models, WorkerOptions const& options)
      : socket_(socket), models_(models), options_(options) {}

  void run() {
    send(WorkerMessage::models, 0, models_.describe());
    while (receive()) {
      enter();
      step();
    }
  }

 private:
  /// Each batch keeps caches of keys and values for as many tokens as batch_tokens allows.
  static constexpr std::size_t max_batches = 4;

  bool computes() const {
    return std::ranges::any_of(batches_, [](Batch const& batch) { return !batch.texts.empty(); });
  }

  void send(WorkerMessage message, std::int64_t number, std::string_view bytes) {
    send_to_parent(socket_, to_bytes(message, number, bytes));
    sent_ = Clock::now();
  }

  /// Tells the server of an error that concerns one text.
  template <class Action>
  void attempt(std::int64_t number, Action const& action) {
    try {
      action();
    } catch (UsageError const& error) {
      send(WorkerMessage::refused, number, error.what());
    } catch (ConfigError const& error) {  // the model or the build has no alignments
      send(WorkerMessage::refused, number, error.what());
    } catch (std::exception const& error) {
      send(WorkerMessage::failed, number, error.what());
    }
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
    take_messages(received_, [&](WorkerMessage message, std::int64_t number, std::string_view content) {
      if (message == WorkerMessage::cancel) {
        cancel(number);
      } else {
        attempt(number, [&] { accept(number, content); });
      }
    });
    return true;
  }

  /// Lets a text wait for a batch. One that has no tokens has its result.
  void accept(std::int64_t number, std::string_view content) {
    ComputedText text;
    text.line.line = {.text = std::string(read_text(content, text.options)), .number = number};
    text.served = models_.find(text.options.model, text.options.adapter);
    choose_languages(*text.served.model, text.options);
    text.line.encoded = encode_source(*text.served.model, text.line.line.text);
    if (!text.line.encoded.tokens) {
      send(WorkerMessage::finished, number, result_json(text));
      return;
    }
    if (waiting_.empty()) {
      waits_since_ = Clock::now();
    }
    waiting_.push_back(std::move(text));
  }

  /// Leaves a text, unless its result is on its way.
  void cancel(std::int64_t number) {
    bool found = std::erase_if(waiting_, [&](ComputedText const& text) { return text.number() == number; }) > 0;
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
      send(WorkerMessage::cancelled, number, "");
    }
  }

  /// Gives waiting texts to their batches, in order: a text whose batch has no place waits, and all after it, so that
  /// none waits forever. While others are computed they wait for each other, within the latency budget.
  void enter() {
    if (waiting_.empty() || (computes() && Clock::now() - waits_since_ < options_.latency_budget)) {
      return;
    }
    bool has_room = true;
    while (has_room && !waiting_.empty()) {
      ComputedText& text = waiting_.front();
      attempt(text.number(), [&] {
        Batch* const batch = batch_for(text);
        has_room = batch != nullptr;
        if (has_room) {
          batch->generation->add(text.number(), *text.line.encoded.tokens, text.line.encoded.start);
          batch->texts[text.number()] = std::move(text);
        }
      });
      if (has_room) {
        waiting_.pop_front();
      }
    }
  }

  /// The batch of a text's options; null if there are too many others that compute.
  Batch* batch_for(ComputedText const& text) {
    ServedOptions const& wanted = text.options;
    ServedModel const& served = text.served;
    auto found = std::ranges::find_if(batches_, [&](Batch const& batch) { return batch.options.same_search(wanted); });
    if (found == batches_.end()) {
      if (batches_.size() == max_batches) {
        auto const idle = std::ranges::find_if(batches_, [](Batch const& batch) { return batch.texts.empty(); });
        if (idle == batches_.end()) {
          return nullptr;
        }
        batches_.erase(idle);
      }
      Batch batch{wanted};
      GenerationOptions options{.beam_size = wanted.beam_size,
                                .n_best = wanted.n_best,
                                .max_length = wanted.max_length,
                                .length_penalty = wanted.length_penalty,
                                .batch_tokens = options_.batch_tokens,
                                .forbidden = served.choices->forbidden,
                                .allow_unknown = served.choices->allow_unknown,
                                .shortlist = served.choices->shortlist};
      if (wanted.stream) {
        auto const grow = [this, model = served.model](std::int64_t number, GrowingTexts::Tokens const& tokens) {
          send(WorkerMessage::growing, number, json_quoted(model->vocabulary().target.decode(tokens)));
        };
        batch.observer = std::make_unique<GrowingTexts>(wanted.length_penalty, grow);
        options.observer = batch.observer.get();
      }
      batch.generation = served.model->generation(options);
      found = batches_.insert(batches_.end(), std::move(batch));
    }
    batches_.splice(batches_.end(), batches_, found);  // the one that was used longest ago is the first to be erased
    return &*found;
  }

  void step() {
    if (Clock::now() - sent_ > std::chrono::seconds(1)) {
      send(WorkerMessage::alive, 0, "");
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
        attempt(generated.number, [&] { send(WorkerMessage::finished, generated.number, result_json(found->second)); });
        batch->texts.erase(found);
        if (batch->observer) {
          batch->observer->forget(generated.number);
        }
      }
    } catch (Error const& error) {  // a number is not finite
      for (auto const& [number, text] : batch->texts) {
        send(WorkerMessage::failed, number, error.what());
      }
      batches_.erase(batch);
    }
  }

  int socket_;
  ServedModels const& models_;
  WorkerOptions options_;
  std::string received_;
  std::deque<ComputedText> waiting_;
  Clock::time_point waits_since_ = {};  ///< the first of them
  std::list<Batch> batches_;
  Clock::time_point sent_ = Clock::now();
};

}  // namespace

void run_worker(int socket, ServedModels const& models, WorkerOptions const& options) {
  Worker(socket, models, options).run();
}

}  // namespace heddle
