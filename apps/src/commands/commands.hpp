#pragma once

#include <heddle/core/base/error.hpp>
#include <string>
#include <vector>

namespace heddle {

/// A subcommand: gets the arguments after its name and returns the process's exit code, or throws.
using Arguments = std::vector<std::string>;

ExitCode run_align(Arguments const& arguments);
ExitCode run_average(Arguments const& arguments);
ExitCode run_checkpoint(Arguments const& arguments);
ExitCode run_clean(Arguments const& arguments);
ExitCode run_config(Arguments const& arguments);
ExitCode run_demo_data(Arguments const& arguments);
ExitCode run_distill(Arguments const& arguments);
ExitCode run_doctor(Arguments const& arguments);
ExitCode run_export(Arguments const& arguments);
ExitCode run_extend_vocabulary(Arguments const& arguments);
ExitCode run_find_rate(Arguments const& arguments);
ExitCode run_import(Arguments const& arguments);
ExitCode run_kernels(Arguments const& arguments);
ExitCode run_lexicon(Arguments const& arguments);
ExitCode run_new_plugin(Arguments const& arguments);
ExitCode run_plan(Arguments const& arguments);
ExitCode run_prepare(Arguments const& arguments);
ExitCode run_supervised(Arguments const& arguments);
ExitCode run_selftest(Arguments const& arguments);
ExitCode run_serve(Arguments const& arguments);
ExitCode run_score(Arguments const& arguments);
ExitCode run_train(Arguments const& arguments);
struct TrainOptions;
/// Trains by these options, which the arguments give, on every rank that a launcher has started.
ExitCode train_on_ranks(TrainOptions const& options, Arguments const& arguments);
ExitCode run_translate(Arguments const& arguments);
ExitCode run_generate(Arguments const& arguments);
ExitCode run_evaluate(Arguments const& arguments);
ExitCode run_init(Arguments const& arguments);
ExitCode run_inspect(Arguments const& arguments);

}  // namespace heddle
