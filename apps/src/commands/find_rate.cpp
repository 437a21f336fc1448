#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
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

/// Makes the configuration that of a test's run. Throws ConfigError where its update rule takes no other rate.
void make_test(Config& config, Registries const& registries, FindRateOptions const& options) {
  RuleDefinition const rule =
      rule_definition(registries.kernels, config.optimizer.name, config.optimizer.places.of("name"));
  if (std::ranges::count(rule.state, average_key) > 0) {
    throw ConfigError("{} = \"{}\" needs a constant rate, so that no range can be tested; AdamW's is a good start",
                      config.optimizer.places.of("name"), rule.name);
  }
  for (RuleOption const& option : registries.schedules.of(config.optimizer).options) {
    config.optimizer.options.erase(option.description.name);
  }
  config.run.directory = options.out;
  config.train.steps = options.steps;
  config.train.epochs = 0;
  config.train.log_every = 1;
  config.train.validate_every = 0;
  config.train.validate_at_start = false;
  config.train.early_stopping = 0;
  config.optimizer.plateau_validations = 0;
  config.optimizer.rewarm_steps = 0;
  config.optimizer.warmup_steps = 1;
  config.optimizer.schedule = "exponential";
  config.optimizer.learning_rate = options.from;
  config.optimizer.options["end_factor"] = {options.to / options.from, "find-rate", "optimizer.end_factor"};
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
  fmt::print("proposed: optimizer.learning_rate = {:.2g}\n  {}; {} shows it\n", search.proposed, search.reason,
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
  options.train.verbosity = Verbosity::quiet;
  options.train.change = [&options](Config& of_run, Registries const& registries) {
    make_test(of_run, registries, options);
  };
  ExitCode code = ExitCode::done;
  try {
    code = train_on_ranks(options.train, arguments);
  } catch (Error const& error) {
    if (error.code() != ExitCode::loss_not_finite) {
      throw;
    }
    code = error.code();
  }
  if (code == ExitCode::loss_not_finite) {
    code = ExitCode::done;
    if (reports) {
      fmt::print("the loss is no longer finite at the highest rates\n");
    }
  }
  if (reports && code == ExitCode::done) {
    report(out);
    fs::remove_all(out / "checkpoints");
  }
  return code;
}

}  // namespace heddle
