#include "training_log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/error.hpp>
#include <iostream>
#include <string>

namespace heddle {

namespace {

constexpr double seconds_between_lines = 5;

/// The lines of an earlier run up to `step`; a torn last line (the run was killed while writing it) ends them.
std::string earlier_lines(std::filesystem::path const& path, std::int64_t step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    boost::json::error_code problem;
    boost::json::value const value = boost::json::parse(line, problem);
    auto const* const at = problem ? nullptr : value.as_object().if_contains("step");
    if (at == nullptr || at->as_int64() > step) {
      break;
    }
    kept += line + "\n";
  }
  return kept;
}

std::string remaining(double seconds) {
  auto const whole = static_cast<std::int64_t>(seconds);
  return whole >= 3600 ? fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60)
                       : fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

}  // namespace

TrainingLog::TrainingLog(std::filesystem::path const& metrics, Start const& start)
    : start_(start),
      terminal_(start.terminal),
      tokens_(start.tokens),
      window_began_(start.seconds),
      last_progress_(start.seconds) {
  std::string const kept = start.step > 0 ? earlier_lines(metrics, start.step) : "";
  auto temporary = metrics;
  temporary += ".new";
  std::ofstream(temporary) << kept;
  std::filesystem::rename(temporary, metrics);
  metrics_.open(metrics, std::ios::app);
  if (!metrics_) {
    throw Error(fmt::format("{}: can not be written", metrics.string()));
  }
}

double TrainingLog::seconds() const {
  return start_.seconds + busy_seconds_ + std::chrono::duration<double>(Clock::now() - busy_since_).count();
}

void TrainingLog::pause() {
  busy_seconds_ += std::chrono::duration<double>(Clock::now() - busy_since_).count();
}

void TrainingLog::resume() {
  busy_since_ = Clock::now();
}

void TrainingLog::step(StepReport const& report, std::optional<ValidationResult> const& validation) {
  tokens_ += report.tokens;
  window_tokens_ += report.tokens;
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
  if (terminal_ || now - last_progress_ >= seconds_between_lines || report.step == start_.steps) {
    progress(report, loss, rate);
    last_progress_ = now;
  }
  if (validation) {
    line["valid_loss"] = validation->loss;
    line["valid_perplexity"] = std::exp(validation->loss);
    std::string text = fmt::format("step {}: validation loss {:.4f}, perplexity {:.2f}", report.step, validation->loss,
                                   std::exp(validation->loss));
    if (validation->bleu) {
      line["valid_bleu"] = *validation->bleu;
      text += fmt::format(", BLEU {:.2f}", *validation->bleu);
    }
    say(text);
  }
  metrics_ << boost::json::serialize(line) << '\n' << std::flush;
  if (!metrics_) {
    throw Error("metrics.jsonl can not be written (is the disk full?)");
  }
  window_steps_ = window_tokens_ = 0;
  window_loss_ = 0;
  window_began_ = now;
}

void TrainingLog::progress(StepReport const& report, double loss, double rate) {
  double const done = static_cast<double>(report.step - start_.step);
  double const left = static_cast<double>(start_.steps - report.step) * (seconds() - start_.seconds) / done;
  std::string const text =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  |grad| {:.3g}  {:.0f} tokens/s  {} left", report.step,
                  start_.steps, loss, report.learning_rate, report.gradient_norm, rate, remaining(left));
  std::cout << (terminal_ ? "\r\x1b[K" : "") << text << (terminal_ ? "" : "\n") << std::flush;
  line_open_ = terminal_;
}

void TrainingLog::say(std::string const& text) {
  std::cout << (line_open_ ? "\n" : "") << text << std::endl;
  line_open_ = false;
}

}  // namespace heddle
