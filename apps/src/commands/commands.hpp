#pragma once

#include <string>
#include <vector>

namespace heddle {

/// A subcommand: gets the arguments after its name and returns the process's exit code, or throws.
using Arguments = std::vector<std::string>;

int run_checkpoint(Arguments const& arguments);
int run_config(Arguments const& arguments);
int run_demo_data(Arguments const& arguments);
int run_doctor(Arguments const& arguments);
int run_kernels(Arguments const& arguments);
int run_new_plugin(Arguments const& arguments);
int run_plan(Arguments const& arguments);
int run_prepare(Arguments const& arguments);
int run_supervised(Arguments const& arguments);
int run_train(Arguments const& arguments);
int run_translate(Arguments const& arguments);
int run_generate(Arguments const& arguments);
int run_evaluate(Arguments const& arguments);
int run_inspect(Arguments const& arguments);

}  // namespace heddle
