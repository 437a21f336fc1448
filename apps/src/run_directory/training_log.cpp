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

#include "newest_step.hpp"

namespace heddle {

namespace {

constexpr double seconds_between_lines = 5;

/// The lines of an earlier run up to `step`; torn ones (the run was killed while writing) are dropped.
std::string earlier_lines(std::filesystem::path const& path, std::int64_t step) {
  std::istringstream file(read_regular(path).value_or(""));
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    std::int64_t const at = step_of_line(line);
    if (at >= 0 && at <= step) {
      kept += line + "\n";
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

TrainingLog TrainingLog::open(RunDirectory const& directory, Start const& start, RunLog& texts) {
  auto const path = directory.path() / metrics_name;
  open_output(path, OutputMode::append);  // which refuses what must not be read or replaced
  directory.replace_file(metrics_name, start.step > 0 ? earlier_lines(path, start.step) : "");
  return {directory.path(), open_output(path, OutputMode::append), start, texts};
}

void TrainingLog::reopen(RunDirectory const& directory) {
  metrics_ = open_output(directory.path() / metrics_name, OutputMode::append);
  events_.reset();
}

TrainingLog::TrainingLog(std::filesystem::path directory, std::unique_ptr<std::ostream> metrics, Start const& start,
                         RunLog& texts)
    : start_(start),
      directory_(std::move(directory)),
      metrics_(std::move(metrics)),
      texts_(texts),
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

void TrainingLog::step(StepReport const& report, std::optional<ValidationResult> const& validation) {
  tokens_ += report.tokens.all;
  window_tokens_ += report.tokens.all;
  window_loss_ += report.loss;
  ++window_steps_;
  if (report.step % start_.every != 0 && !validation && report.step != start_.steps) {
    return;
  }
  double const now = seconds();
  double const rate = static_cast<double>(window_tokens_) / std::max(now - window_began_, 1e-9);
  double const loss = window_loss_ / static_cast<double>(window_steps_);
  boost::json::object line{{"step", report.step},
                           {"train_loss", loss},
                           {"learning_rate", report.learning_rate},
                           {"gradient_norm", report.gradient_norm},
                           {"tokens", tokens_},
                           {"tokens_per_second", rate},
                           {"seconds", now}};
  progress(report, loss, rate);
  if (validation) {
    line["valid_loss"] = validation->loss;
    line["valid_perplexity"] = std::exp(validation->loss);
    std::string text = fmt::format("step {}: validation loss {:.4f}, perplexity {:.5g}", readable_count(report.step),
                                   validation->loss, std::exp(validation->loss));
    if (validation->accuracy) {
      line["valid_accuracy"] = *validation->accuracy;
      text += fmt::format(", masked accuracy {:.2f} %", 100 * *validation->accuracy);
    }
    if (validation->bleu) {
      line["valid_bleu"] = *validation->bleu;
      text += fmt::format(", BLEU {:.2f}", *validation->bleu);
    }
    for (AttentionEntropy const& each : validation->entropies) {
      line.emplace("attention_entropy", boost::json::object()).first->value().as_object()[each.path] = each.mean;
    }
    texts_.say(text);
  }
  TrafficByGroup const traffic = traffic_of(start_.parallel);
  if (auto communication = to_json(traffic - traffic_); !communication.empty()) {
    line["communication"] = std::move(communication);
  }
  if (window_repeated_ > 0) {
    line["repeated"] = window_repeated_;
    line["skipped"] = window_skipped_;
  }
  *metrics_ << boost::json::serialize(line) << '\n' << std::flush;
  if (!*metrics_) {
    throw Error("metrics.jsonl cannot be written (is the disk full?)");
  }
  if (events_work_) {
    try {
      write_events(report, loss, rate, validation);
    } catch (std::exception const& problem) {  // a curve less is no reason to lose a run
      events_work_ = false;
      events_.reset();
      texts_.say(fmt::format("warning: no more event files for TensorBoard in this start: {}", problem.what()));
    }
  }
  window_steps_ = window_tokens_ = window_repeated_ = window_skipped_ = 0;
  window_loss_ = 0;
  traffic_ = traffic;
  window_began_ = now;
}

void TrainingLog::write_events(StepReport const& report, double loss, double rate,
                               std::optional<ValidationResult> const& validation) {
  if (!events_) {
    events_.emplace(directory_ / "tensorboard", start_.step + 1);
  }
  std::int64_t const step = report.step;
  events_->scalar(step, "train/loss", loss);
  events_->scalar(step, "train/learning_rate", report.learning_rate);
  events_->scalar(step, "train/gradient_norm", report.gradient_norm);
  events_->scalar(step, "train/tokens_per_second", rate);
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

void TrainingLog::progress(StepReport const& report, double loss, double rate) {
  double const done = static_cast<double>(report.step - start_.step);
  double const left = static_cast<double>(start_.steps - report.step) * (seconds() - start_.seconds) / done;
  std::string const text =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  |grad| {:.3g}  {} tokens/s  {} left",
                  readable_count(report.step), readable_count(start_.steps), loss, report.learning_rate,
                  report.gradient_norm, readable_count(rate), readable_duration(left));
  double const now = seconds();
  bool const due = now - last_progress_ >= seconds_between_lines || report.step == start_.steps;
  last_progress_ = due ? now : last_progress_;
  texts_.progress(text, due);
}

void TrainingLog::count_repeated(bool skipped) {
  ++window_repeated_;
  window_skipped_ += skipped ? 1 : 0;
}

}  // namespace heddle
