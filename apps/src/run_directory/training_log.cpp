#include "training_log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "metrics_file.hpp"
#include "report/json_text.hpp"

namespace heddle {

namespace {

constexpr double seconds_between_lines = 5;

void take_better(std::optional<BestBleu>& best, BestBleu const& other) {
  if (!best || other.bleu > best->bleu) {
    best = other;
  }
}

/// Whether a line's validation is of this set. Older lines do not name theirs.
bool is_of(boost::json::object const& line, std::string const& valid_dataset) {
  auto const* const digest = line.if_contains("valid_dataset");
  return digest != nullptr && digest->is_string() && digest->get_string() == valid_dataset;
}

/// The lines of an earlier run up to the start's step; torn ones (the run was killed while writing) are dropped. `best`
/// is the highest BLEU in them on the start's validation set.
std::string earlier_lines(std::filesystem::path const& path, TrainingLog::Start const& start,
                          std::optional<BestBleu>& best) {
  std::istringstream file(read_regular(path).value_or(""));
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    auto const object = parse_metrics_line(line);
    std::int64_t const at = step_of(object);
    if (at < 0 || at > start.step) {
      continue;
    }
    kept += line + "\n";
    auto const* const bleu = object->if_contains("valid_bleu");
    if (bleu != nullptr && bleu->is_number() && is_of(*object, start.valid_dataset)) {
      take_better(best, {bleu->to_number<double>(), at});
    }
  }
  return kept;
}

/// Formats traffic as {"tensor.all_reduce": {"operations": 3, "bytes": 96}, …}
boost::json::object to_json(TrafficByGroup const& traffic) {
  boost::json::object object;
  for_each_traffic(traffic, [&](std::string const& name, Traffic const& entry) {
    object[name] = boost::json::object{{"operations", entry.operations}, {"bytes", entry.bytes}};
  });
  return object;
}

}  // namespace

TrainingLog TrainingLog::open(RunDirectory const& directory, Start const& start, RunLog& log) {
  auto const path = directory.path() / metrics_name;
  open_output(path, OutputMode::append);  // which refuses what must not be read or replaced
  std::optional<BestBleu> best;
  directory.replace_file(metrics_name, start.step > 0 ? earlier_lines(path, start, best) : "");
  TrainingLog opened(directory.path(), open_output(path, OutputMode::append), start, log);
  opened.best_bleu_ = best;
  return opened;
}

void TrainingLog::reopen(RunDirectory const& directory) {
  metrics_ = open_output(directory.path() / metrics_name, OutputMode::append);
  events_.reset();
}

TrainingLog::TrainingLog(std::filesystem::path directory, std::unique_ptr<std::ostream> metrics, Start const& start,
                         RunLog& log)
    : start_(start),
      directory_(std::move(directory)),
      metrics_(std::move(metrics)),
      log_(log),
      tokens_(start.tokens),
      traffic_(traffic_of(start.parallel)),
      window_began_(start.seconds),
      last_progress_(start.seconds) {}

double TrainingLog::seconds() const {
  double const open = busy_ ? std::chrono::duration<double>(Clock::now() - busy_since_).count() : 0;
  return start_.seconds + busy_seconds_ + open;
}

void TrainingLog::pause() {
  busy_seconds_ = seconds() - start_.seconds;
  busy_ = false;
}

void TrainingLog::resume() {
  busy_ = true;
  busy_since_ = Clock::now();
}

void TrainingLog::add_validation(std::int64_t step, ValidationResult const& validation, boost::json::object& line) {
  line["valid_loss"] = validation.loss;
  line["valid_perplexity"] = std::exp(validation.loss);
  std::string text = fmt::format("step {}: validation loss {:.4f}, perplexity {:.5g}", readable_count(step),
                                 validation.loss, std::exp(validation.loss));
  if (validation.accuracy) {
    line["valid_accuracy"] = *validation.accuracy;
    text += fmt::format(", masked accuracy {:.2f} %", 100 * *validation.accuracy);
  }
  if (validation.bleu) {
    line["valid_bleu"] = *validation.bleu;
    line["valid_dataset"] = start_.valid_dataset;
    text += fmt::format(", BLEU {:.2f}", *validation.bleu);
    take_better(best_bleu_, {*validation.bleu, step});
  }
  for (AttentionEntropy const& each : validation.entropies) {
    line.emplace("attention_entropy", boost::json::object()).first->value().as_object()[each.path] = each.mean;
  }
  log_.info(text);
}

void TrainingLog::step(StepReport const& report, std::optional<ValidationResult> const& validation) {
  tokens_ += report.tokens.all;
  window_tokens_ += report.tokens.all;
  window_loss_ += report.loss;
  window_nll_ += report.nll;
  ++window_steps_;
  if (report.step % start_.every != 0 && !validation && report.step != start_.steps) {
    return;
  }
  double const now = seconds();
  auto const steps = static_cast<double>(window_steps_);
  Means const means{.loss = window_loss_ / steps,
                    .nll = window_nll_ / steps,
                    .tokens_per_second = static_cast<double>(window_tokens_) / std::max(now - window_began_, 1e-9)};
  boost::json::object line{{"step", report.step},
                           {"train_loss", means.loss},
                           {"learning_rate", report.learning_rate},
                           {"gradient_norm", report.gradient_norm},
                           {"tokens", tokens_},
                           {"epoch", report.epochs},
                           {"train_nll", means.nll},
                           {"tokens_per_second", means.tokens_per_second},
                           {"seconds", now}};
  progress(report, means);
  if (validation) {
    add_validation(report.step, *validation, line);
  }
  TrafficByGroup const traffic = traffic_of(start_.parallel);
  if (auto communication = to_json(traffic - traffic_); !communication.empty()) {
    line["communication"] = std::move(communication);
  }
  if (window_repeated_ > 0) {
    line["repeated"] = window_repeated_;
    line["skipped"] = window_skipped_;
  }
  *metrics_ << json_text(line) << '\n' << std::flush;
  if (!*metrics_) {
    throw Error("metrics.jsonl cannot be written (is the disk full?)");
  }
  if (events_work_) {
    try {
      write_events(report, means, validation);
    } catch (std::exception const& problem) {  // a curve less is no reason to lose a run
      events_work_ = false;
      events_.reset();
      log_.warn(fmt::format("no more event files for TensorBoard in this start: {}", problem.what()));
    }
  }
  window_steps_ = window_tokens_ = window_repeated_ = window_skipped_ = 0;
  window_loss_ = window_nll_ = 0;
  traffic_ = traffic;
  window_began_ = now;
}

void TrainingLog::write_events(StepReport const& report, Means const& means,
                               std::optional<ValidationResult> const& validation) {
  if (!events_) {
    events_.emplace(directory_ / "tensorboard", start_.step + 1);
  }
  std::int64_t const step = report.step;
  events_->scalar(step, "train/loss", means.loss);
  events_->scalar(step, "train/nll", means.nll);
  events_->scalar(step, "train/learning_rate", report.learning_rate);
  events_->scalar(step, "train/gradient_norm", report.gradient_norm);
  events_->scalar(step, "train/tokens_per_second", means.tokens_per_second);
  if (validation) {
    events_->scalar(step, "valid/loss", validation->loss);
    if (validation->bleu) {
      events_->scalar(step, "valid/bleu", *validation->bleu);
      events_->text(step, "valid/translations", validation->translations);
    }
    for (AttentionEntropy const& each : validation->entropies) {
      events_->scalar(step, "attention_entropy/" + each.path, each.mean);
    }
    for (NamedImage const& each : validation->attention) {
      events_->image(step, "attention/" + each.name, each.image);
    }
    if (!validation->attention.empty()) {
      events_->text(step, "attention/tokens", validation->attention_tokens);
    }
    if (validation->accuracy) {
      events_->scalar(step, "valid/accuracy", *validation->accuracy);
    }
    events_->histogram(step, "norms/parameters", validation->norms.parameters);
    events_->histogram(step, "norms/gradients", validation->norms.gradients);
  }
  events_->flush();
}

void TrainingLog::progress(StepReport const& report, Means const& means) {
  double const done = static_cast<double>(report.step - start_.step);
  double const left = static_cast<double>(start_.steps - report.step) * (seconds() - start_.seconds) / done;
  std::string const text = fmt::format(
      "step {}/{}  epoch {:.2f}  loss {:.4f}  unsmoothed {:.4f}  lr {:.3g}  |grad| {:.3g}  {} tokens/s  {} "
      "left",
      readable_count(report.step), readable_count(start_.steps), report.epochs, means.loss, means.nll,
      report.learning_rate, report.gradient_norm, readable_count(means.tokens_per_second), readable_duration(left));
  double const now = seconds();
  bool const due = now - last_progress_ >= seconds_between_lines || report.step == start_.steps;
  last_progress_ = due ? now : last_progress_;
  log_.progress(text, due);
}

void TrainingLog::count_repeated(bool skipped) {
  ++window_repeated_;
  window_skipped_ += skipped ? 1 : 0;
}

}  // namespace heddle
