#include "training_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "metrics.hpp"
#include "run/directory/json_text.hpp"
#include "run/directory/run_progress.hpp"

namespace heddle {

namespace {

constexpr double seconds_between_lines = 5;

/// Counts a value of a measure in the list of the best ones.
void take_better(std::vector<BestValue>& best, std::string const& key, double value, std::int64_t step) {
  auto const found = std::ranges::find(best, key, [](BestValue const& each) { return each.measure.key(); });
  if (found != best.end() && std::isfinite(value) && (found->step == 0 || found->measure.better(value, found->value))) {
    found->value = value;
    found->step = step;
  }
}

/// Whether a line's validation is of these data.
bool is_of(boost::json::object const& line, std::string const& set, std::map<std::string, std::string> const& digests) {
  auto const expected = digests.find(set);
  return expected != digests.end() && valid_dataset_of(line, set) == expected->second;
}

/// The lines of an earlier run up to the start's step; torn ones (the run was killed while writing) are dropped. Counts
/// the values in them that were measured on the start's validation sets.
std::string earlier_lines(std::filesystem::path const& path, TrainingLog::Start const& start,
                          std::vector<BestValue>& best) {
  std::istringstream file(read_regular(path).value_or(""));
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    auto const object = parse_metrics_line(line);
    std::int64_t const at = step_of(object);
    if (at < 0 || at > start.step) {
      continue;
    }
    kept += line + "\n";
    for (Measure const& measure : start.measures) {
      auto const* const value = object->if_contains(measure.key());
      if (value != nullptr && value->is_number() && is_of(*object, measure.data(), start.valid_datasets)) {
        take_better(best, measure.key(), value->to_number<double>(), at);
      }
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

/// "epoch 0.86", with several corpora also the passes over the first ones: "epoch 0.86 (news 1.10, web 0.40)".
std::string epochs_text(StepReport const& report) {
  constexpr std::size_t shown = 4;
  std::vector<std::string> corpora;
  for (auto const& [corpus, epochs] : report.corpus_epochs) {
    if (corpora.size() == shown) {
      corpora.emplace_back("…");
      break;
    }
    corpora.push_back(fmt::format("{} {:.2f}", corpus, epochs));
  }
  std::string const all = fmt::format("epoch {:.2f}", report.epochs);
  return corpora.empty() ? all : fmt::format("{} ({})", all, fmt::join(corpora, ", "));
}

/// {"news": 2.5, …}: the losses per target token.
boost::json::object means(std::map<std::string, GroupLoss> const& losses) {
  boost::json::object object;
  for (auto const& [name, loss] : losses) {
    if (loss.tokens > 0) {
      object[name] = loss.nll / static_cast<double>(loss.tokens);
    }
  }
  return object;
}

boost::json::object sums(std::map<std::string, GroupLoss> const& losses) {
  boost::json::object object;
  for (auto const& [name, loss] : losses) {
    object[name] = boost::json::array{bits_of(loss.nll), loss.tokens};
  }
  return object;
}

std::map<std::string, GroupLoss> losses_in(boost::json::value const& sums) {
  std::map<std::string, GroupLoss> losses;
  for (auto const& [name, pair] : sums.as_object()) {
    losses[name] = {number_of_bits(pair.at(0)), pair.at(1).to_number<std::int64_t>()};
  }
  return losses;
}

/// {"encoder.layers.1.mixture_of_experts": [dropped choices, choices of each expert …], …}
boost::json::object sums(std::map<std::string, ExpertLoad> const& mixtures) {
  boost::json::object object;
  for (auto const& [layer, load] : mixtures) {
    boost::json::array numbers{load.dropped};
    numbers.insert(numbers.end(), load.choices.begin(), load.choices.end());
    object[layer] = std::move(numbers);
  }
  return object;
}

std::map<std::string, ExpertLoad> loads_in(boost::json::value const& sums) {
  std::map<std::string, ExpertLoad> mixtures;
  for (auto const& [layer, numbers] : sums.as_object()) {
    auto values = boost::json::value_to<std::vector<double>>(numbers);
    mixtures[layer] = {.layer = layer, .choices = {values.begin() + 1, values.end()}, .dropped = values.front()};
  }
  return mixtures;
}

/// Adds each expert's share of its mixture's choices, how even the shares are, and the share of the dropped choices.
void add_mixtures(std::vector<Metric>& metrics, std::map<std::string, ExpertLoad> const& mixtures) {
  boost::json::object shares;
  boost::json::object entropies;
  boost::json::object dropped;
  for (auto const& [layer, load] : mixtures) {
    double const total = load.total();
    boost::json::array& of_layer = shares[layer].emplace_array();
    std::ranges::transform(load.choices, std::back_inserter(of_layer), [&](double count) { return count / total; });
    entropies[layer] = load.entropy();
    dropped[layer] = load.dropped / total;
  }
  if (!mixtures.empty()) {
    metrics.push_back({"expert_load", std::move(shares)});
    metrics.push_back({"expert_entropy", std::move(entropies), "train/expert_entropy"});
    metrics.push_back({"expert_dropped", std::move(dropped), "train/expert_dropped"});
  }
}

/// [[source, reference, translation], …], long texts shortened, so that lines stay short.
boost::json::array to_json(std::vector<SampleTranslation> const& samples) {
  constexpr std::size_t max_bytes = 400;
  auto const shortened = [](std::string const& text) {
    if (text.size() <= max_bytes) {
      return text;
    }
    std::size_t end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
      --end;  // a character is not divided
    }
    return text.substr(0, end) + "…";
  };
  boost::json::array rows;
  for (auto const& [source, reference, translation] : samples) {
    rows.push_back(boost::json::array{shortened(source), shortened(reference), shortened(translation)});
  }
  return rows;
}

/// The samples as a table in Markdown.
std::string table(std::vector<SampleTranslation> const& samples) {
  std::string text = "| source | translation | reference |\n| --- | --- | --- |\n";
  for (auto const& [source, reference, translation] : samples) {
    text +=
        fmt::format("| {} | {} | {} |\n", markdown_cell(source), markdown_cell(translation), markdown_cell(reference));
  }
  return text;
}

/// The texts of metrics that have one.
std::string joined_texts(std::vector<Metric> const& metrics, std::string_view separator) {
  std::string text;
  for (Metric const& metric : metrics) {
    text += text.empty() || metric.text.empty() ? metric.text : fmt::format("{}{}", separator, metric.text);
  }
  return text;
}

/// Adds what was measured with these parameters, "valid_averages_loss", to the line of a validation.
void add_alternative(std::vector<Metric>& metrics, std::string const& parameters,
                     std::vector<MeasuredValue> const& measured) {
  for (auto const& [measure, value] : measured) {
    Measure const own{parameters + "_" + measure.metric, measure.set};
    std::string const set = measure.set.empty() ? "" : "/" + measure.set;
    metrics.push_back({own.key(), value, fmt::format("valid_{}/{}{}", parameters, measure.metric, set)});
  }
}

}  // namespace

double ValidationResult::value_of(Measure const& measure) const {
  auto const found =
      std::ranges::find(values, measure.key(), [](MeasuredValue const& each) { return each.measure.key(); });
  return found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->value;
}

std::string markdown_cell(std::string text) {
  for (std::size_t place = text.find('|'); place != std::string::npos; place = text.find('|', place + 2)) {
    text.insert(place, "\\");
  }
  return text;
}

TrainingLog TrainingLog::open(RunDirectory const& directory, Start const& start, RunLog& log) {
  auto const path = directory.path() / metrics_name;
  open_output(path, OutputMode::append);  // which refuses what must not be read or replaced
  std::vector<BestValue> best;
  for (Measure const& measure : start.measures) {
    best.push_back({measure});
  }
  directory.replace_file(metrics_name, start.step > 0 ? earlier_lines(path, start, best) : "");
  TrainingLog opened(directory.path(), open_output(path, OutputMode::append), start, log);
  opened.best_values_ = std::move(best);
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
      window_(window_of(start)),
      traffic_(traffic_of(start.parallel)),
      last_progress_(start.seconds) {}

TrainingLog::Window TrainingLog::window_of(Start const& start) {
  Window window{.began = start.seconds};
  if (start.begun_line.empty()) {
    return window;
  }
  try {
    boost::json::value const line = boost::json::parse(start.begun_line);
    auto const count = [&](char const* key) { return line.at(key).to_number<std::int64_t>(); };
    window = {.began = number_of_bits(line.at("began")),
              .steps = count("steps"),
              .tokens = count("tokens"),
              .loss = number_of_bits(line.at("loss")),
              .nll = number_of_bits(line.at("nll")),
              .noise = {number_of_bits(line.at("noise").at(0)), number_of_bits(line.at("noise").at(1))},
              .repeated = count("repeated"),
              .skipped = count("skipped"),
              .corpora = losses_in(line.at("corpora")),
              .mixtures = loads_in(line.at("mixtures"))};
  } catch (std::exception const&) {  // another version's: this start's steps alone count
  }
  return window;
}

std::map<std::string, GroupLoss> TrainingLog::losses_by_tag() const {
  std::map<std::string, GroupLoss> losses;
  for (auto const& [corpus, tag] : start_.corpus_tags) {
    if (auto const loss = window_.corpora.find(corpus); loss != window_.corpora.end()) {
      losses[tag].add(loss->second);
    }
  }
  return losses;
}

std::string TrainingLog::begun_line() const {
  return window_.steps == 0 && window_.repeated == 0
             ? ""
             : boost::json::serialize(
                   boost::json::object{{"began", bits_of(window_.began)},
                                       {"steps", window_.steps},
                                       {"tokens", window_.tokens},
                                       {"loss", bits_of(window_.loss)},
                                       {"nll", bits_of(window_.nll)},
                                       {"noise", {bits_of(window_.noise.variance), bits_of(window_.noise.square)}},
                                       {"repeated", window_.repeated},
                                       {"skipped", window_.skipped},
                                       {"corpora", sums(window_.corpora)},
                                       {"mixtures", sums(window_.mixtures)}});
}

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

std::vector<Metric> TrainingLog::step_metrics(StepReport const& report, double now) const {
  auto const steps = static_cast<double>(window_.steps);
  double const loss = window_.loss / steps;
  double const nll = window_.nll / steps;
  double const rate = report.learning_rate;
  double const norm = report.result.gradient_norm;
  double const speed = static_cast<double>(window_.tokens) / std::max(now - window_.began, 1e-9);
  std::vector<Metric> metrics{
      {"step", report.step},
      {"train_loss", loss, "train/loss", fmt::format("loss {:.4f}", loss)},
      {"learning_rate", rate, "train/learning_rate", fmt::format("lr {:.3g}", rate)},
      {"gradient_norm", norm, "train/gradient_norm", fmt::format("|grad| {:.3g}", norm)},
      {"tokens", tokens_},
      {"epoch", report.epochs, "", epochs_text(report)},
      {"train_nll", nll, "train/nll", fmt::format("unsmoothed {:.4f}", nll)},
      {"tokens_per_second", speed, "train/tokens_per_second", fmt::format("{} tokens/s", readable_count(speed))},
      {"seconds", now}};
  if (window_.noise.variance > 0 && window_.noise.square > 0) {
    metrics.push_back(
        {"gradient_noise_scale", window_.noise.variance / window_.noise.square, "train/gradient_noise_scale"});
  }
  return metrics;
}

std::vector<Metric> TrainingLog::validation_metrics(ValidationResult const& validation) const {
  std::vector<Metric> metrics;
  if (!validation.of_averages.empty()) {
    metrics.push_back({.key = "valid_by_averages",
                       .value = validation.averages_better ? 1 : 0,
                       .text = validation.averages_better ? "by averages" : "by values, better than averages"});
    add_alternative(metrics, "values", validation.of_values);
    add_alternative(metrics, "averages", validation.of_averages);
  }
  for (auto const& [measure, value] : validation.values) {
    std::string const tag = fmt::format("valid/{}{}{}", measure.metric, measure.set.empty() ? "" : "/", measure.set);
    metrics.push_back({measure.key(), value, tag, fmt::format("{} {}", measure.name(), measure.number(value))});
    if (measure.metric == "loss") {
      double const perplexity = std::exp(value);
      Measure const of_set{"perplexity", measure.set};
      metrics.push_back({of_set.key(), perplexity, "", fmt::format("{} {:.5g}", of_set.name(), perplexity)});
    }
  }
  for (auto const& [set, digest] : start_.valid_datasets) {
    metrics.push_back({.key = validation_key("dataset", set), .value = boost::json::value(digest)});
  }
  if (!validation.samples.empty()) {
    metrics.push_back({.key = valid_samples_key, .value = to_json(validation.samples)});
  }
  boost::json::object entropies;
  for (AttentionEntropy const& each : validation.entropies) {
    entropies[each.path] = each.mean;
  }
  if (!entropies.empty()) {
    metrics.push_back({"attention_entropy", std::move(entropies), "attention_entropy"});
  }
  return metrics;
}

void TrainingLog::step(StepReport const& report, std::optional<ValidationResult> const& validation) {
  tokens_ += report.tokens.all;
  window_.tokens += report.tokens.all;
  window_.loss += report.result.loss;
  window_.nll += report.result.nll;
  window_.noise.variance += report.result.noise.variance;
  window_.noise.square += report.result.noise.square;
  ++window_.steps;
  for (auto const& [corpus, loss] : report.corpus_losses) {
    window_.corpora[corpus].add(loss);
  }
  for (ExpertLoad const& load : report.result.expert_loads) {
    window_.mixtures[load.layer].add(load);
  }
  if (report.step % start_.every != 0 && !validation && report.step != start_.steps) {
    return;
  }
  double const now = seconds();
  std::vector<Metric> metrics = step_metrics(report, now);
  print_progress(report, metrics, now);
  if (validation) {
    add_validation(report.step, *validation, metrics);
  }
  TrafficByGroup const traffic = traffic_of(start_.parallel);
  if (auto communication = to_json(traffic - traffic_); !communication.empty()) {
    metrics.push_back({"communication", std::move(communication)});
  }
  if (!report.corpus_epochs.empty()) {
    metrics.push_back({"corpus_epochs", boost::json::value_from(report.corpus_epochs), "train/corpus_epochs"});
  }
  if (auto losses = means(window_.corpora); !losses.empty()) {
    metrics.push_back({"corpus_nll", std::move(losses), "train/corpus_nll"});
  }
  if (auto losses = means(losses_by_tag()); losses.size() > 1) {
    metrics.push_back({"tag_nll", std::move(losses), "train/tag_nll"});
  }
  add_mixtures(metrics, window_.mixtures);
  if (window_.repeated > 0) {
    metrics.push_back({"repeated", window_.repeated});
    metrics.push_back({"skipped", window_.skipped});
  }
  write(report.step, metrics, validation);
  window_ = {.began = now};
  traffic_ = traffic;
}

void TrainingLog::validation(std::int64_t step, ValidationResult const& validation) {
  std::vector<Metric> metrics{{"step", step}};
  add_validation(step, validation, metrics);
  write(step, metrics, validation);
}

void TrainingLog::add_validation(std::int64_t step, ValidationResult const& validation, std::vector<Metric>& metrics) {
  auto const of_validation = validation_metrics(validation);
  print_validation(step, of_validation);
  metrics.insert(metrics.end(), of_validation.begin(), of_validation.end());
  for (auto const& [measure, value] : validation.values) {
    take_better(best_values_, measure.key(), value, step);
  }
}

void TrainingLog::write(std::int64_t step, std::vector<Metric> const& metrics,
                        std::optional<ValidationResult> const& validation) {
  boost::json::object line;
  for (Metric const& metric : metrics) {
    line[metric.key] = metric.value;
  }
  *metrics_ << json_text(line) << '\n' << std::flush;
  if (!*metrics_) {
    throw Error("metrics.jsonl cannot be written (is the disk full?)");
  }
  if (events_work_) {
    try {
      write_events(step, metrics, validation);
    } catch (std::exception const& problem) {  // a missing curve must not end a run
      events_work_ = false;
      events_.reset();
      log_.warn(fmt::format("no more event files for TensorBoard in this start: {}", problem.what()));
    }
  }
}

void TrainingLog::print_validation(std::int64_t step, std::vector<Metric> const& metrics) {
  auto const set_of = [](Metric const& metric) {
    std::size_t const slash = metric.key.find('/');
    return slash == std::string::npos ? "" : metric.key.substr(slash);
  };
  for (auto first = metrics.begin(); first != metrics.end();) {
    auto const next =
        std::find_if(first, metrics.end(), [&](Metric const& each) { return set_of(each) != set_of(*first); });
    if (std::string const text = joined_texts({first, next}, ", "); !text.empty()) {
      log_.info(fmt::format("step {}: {}", readable_count(step), text));
    }
    first = next;
  }
}

void TrainingLog::write_events(std::int64_t step, std::vector<Metric> const& metrics,
                               std::optional<ValidationResult> const& validation) {
  if (!events_) {
    events_.emplace(directory_ / "tensorboard", start_.step + 1);
  }
  for (Metric const& metric : metrics) {
    if (auto const* const numbers = metric.value.if_object(); numbers != nullptr && !metric.tag.empty()) {
      for (auto const& [key, number] : *numbers) {
        events_->scalar(step, fmt::format("{}/{}", metric.tag, std::string_view(key)), number.to_number<double>());
      }
    } else if (!metric.tag.empty()) {
      events_->scalar(step, metric.tag, metric.value.to_number<double>());
    }
  }
  if (validation) {
    if (!validation->samples.empty()) {
      events_->text(step, "valid/translations", table(validation->samples));
    }
    for (NamedImage const& each : validation->attention) {
      events_->image(step, "attention/" + each.name, each.image);
    }
    if (!validation->attention.empty()) {
      events_->text(step, "attention/tokens", validation->attention_tokens);
    }
    if (!validation->norms.parameters.empty()) {
      events_->histogram(step, "norms/parameters", validation->norms.parameters);
    }
    if (!validation->norms.gradients.empty()) {
      events_->histogram(step, "norms/gradients", validation->norms.gradients);
    }
  }
  events_->flush();
}

void TrainingLog::print_progress(StepReport const& report, std::vector<Metric> const& metrics, double now) {
  auto const done = static_cast<double>(report.step - start_.step);
  double const left = static_cast<double>(start_.steps - report.step) * (now - start_.seconds) / done;
  bool const due = now - last_progress_ >= seconds_between_lines || report.step == start_.steps;
  last_progress_ = due ? now : last_progress_;
  log_.progress(fmt::format("step {}/{}  {}  {} left", readable_count(report.step), readable_count(start_.steps),
                            joined_texts(metrics, "  "), readable_duration(left)),
                due);
}

void TrainingLog::count_repeated(bool skipped) {
  ++window_.repeated;
  window_.skipped += skipped ? 1 : 0;
}

}  // namespace heddle
