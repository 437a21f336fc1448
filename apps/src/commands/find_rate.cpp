#include <fmt/format.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parameters/schedules.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/run.hpp>

#include "command_line/train_options.hpp"
#include "commands.hpp"
#include "measures/rate_search.hpp"
#include "run/configuration/registration.hpp"
#include "run/directory/json_text.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

struct FindRateOptions {
  TrainOptions train;
  double from = 1e-5;
  double to = 0.3;
  std::int64_t steps = 200;
  std::string out;
};

CommandSyntax find_rate_syntax(FindRateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "find-rate";
  syntax.usage = "RUN.toml [--set SECTION.KEY=VALUE]... [--from X] [--to X] [--steps N]";
  syntax.summary = R"(Trains a new model as RUN.toml says for some steps, alone or under mpirun, in which the learning
rate grows from --from to --to by the same factor in each (a range test: Smith 2017), and proposes an
optimizer.learning_rate by the losses. The directory --out then has rates.json and rates.svg, a plot.)";
  add_config_options(syntax, options.train, true);
  syntax.options.add_options()  //
      ("trust-plugins", boost::program_options::bool_switch(&options.train.trust_plugins),
       "load plug-ins without checking their kernels and layers")         //
      ("from", with_default(options.from, "X"), "the first rate")         //
      ("to", with_default(options.to, "X"), "the last rate")              //
      ("steps", with_default(options.steps, "N"), "the number of steps")  //
      ("out", without_default(options.out, "DIRECTORY"),
       "a directory that does not exist; default: run.directory with -rates at its end");
  return syntax;
}

void require_valid(FindRateOptions const& options) {
  if (!(options.from > 0 && options.to > options.from) || options.steps < 20) {
    throw UsageError(
        "find-rate: --from {}, --to {}, --steps {}: expected rates above 0, the second one higher, and at least 20 "
        "steps",
        options.from, options.to, options.steps);
  }
}

/// The configuration of a test's run. The options of its own schedule, which is not used, are left out.
Config test_config(Config config, FindRateOptions const& options) {
  ScheduleRegistry schedules;
  register_schedules(schedules);
  if (ScheduleEntry const* const own = schedules.find(config.optimizer.schedule)) {
    for (RuleOption const& option : own->options) {
      config.optimizer.options.erase(option.description.name);
    }
  }
  config.run.directory = options.out;
  config.train.steps = options.steps;
  config.train.log_every = 1;
  config.train.validate_every = 0;
  config.train.early_stopping = 0;
  config.train.initialize_from = {};
  config.optimizer.plateau_validations = 0;
  config.optimizer.rewarm_steps = 0;
  config.optimizer.warmup_steps = 1;
  config.optimizer.schedule = "exponential";
  config.optimizer.learning_rate = options.from;
  config.optimizer.options["end_factor"] = {options.to / options.from, "find-rate", "optimizer.end_factor"};
  return config;
}

/// Trains on every rank by a configuration in a file that is removed afterwards.
ExitCode train_by(Config const& config, TrainOptions const& options) {
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  };
  Removed const file{fs::temp_directory_path() / fmt::format("heddle-rates-{}.toml", ::getpid())};
  replace_file(file.path, to_toml(config));
  Arguments arguments{file.path.string(), "--quiet"};
  if (options.trust_plugins) {
    arguments.emplace_back("--trust-plugins");
  }
  return run_train(arguments);
}

/// Reads the losses of the run, writes the result beside them, and prints it.
void report(fs::path const& run) {
  RunMetrics const metrics = read_metrics(run / "metrics.jsonl");
  MetricSeries const& losses = metrics.series.at("train_loss");
  std::vector<TriedRate> steps;
  for (std::size_t index = 0; index < losses.values.size(); ++index) {
    auto const rate = metrics.at("learning_rate", static_cast<std::int64_t>(losses.steps[index]));
    steps.push_back({rate.value(), losses.values[index]});
  }
  RateSearch const search = search_rate(steps);
  boost::json::array tried;
  for (TriedRate const& each : search.tried) {
    tried.push_back({{"rate", each.rate}, {"loss", each.loss}});
  }
  boost::json::object const result{{"proposed", search.proposed},
                                   {"lowest", search.lowest},
                                   {"reason", search.reason},
                                   {"doubt", search.doubt},
                                   {"tried", std::move(tried)}};
  replace_file(run / "rates.json", json_text(result) + "\n");
  replace_file(run / "rates.svg", draw(search));
  constexpr std::size_t rows = 12;
  fmt::print("{:>10}  {:>8}\n", "rate", "loss");
  for (std::size_t row = 0; row < rows; ++row) {
    TriedRate const& each = search.tried[row * (search.tried.size() - 1) / (rows - 1)];
    fmt::print("{:>10.2e}  {:>8.3f}\n", each.rate, each.loss);
  }
  if (!search.doubt.empty()) {
    fmt::print("warning: {}\n", search.doubt);
  }
  fmt::print("proposed: optimizer.learning_rate = {}\n  {}; {} shows it\n", search.proposed, search.reason,
             (run / "rates.svg").string());
}

}  // namespace

ExitCode run_find_rate(Arguments const& arguments) {
  FindRateOptions options;
  parse_options(find_rate_syntax(options), arguments);
  require_valid(options);
  Config const config = read_config(options.train);
  if (options.out.empty()) {
    options.out = config.run.directory + "-rates";
  }
  fs::path const out = options.out;
  bool const reports = launched_rank().rank == 0;
  if (reports && fs::exists(out)) {
    throw UsageError("find-rate: {} is there already; remove it, or name another directory with --out", options.out);
  }
  ExitCode const code = train_by(test_config(config, options), options.train);
  if (!reports || !fs::exists(out / "metrics.jsonl") || (code != ExitCode::done && code != ExitCode::loss_not_finite)) {
    return code;
  }
  report(out);
  fs::remove_all(out / "checkpoints");
  return ExitCode::done;
}

}  // namespace heddle
