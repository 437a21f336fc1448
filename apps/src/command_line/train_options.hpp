#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"

namespace heddle {

/// Adds the options of both commands.
void add_train_options(CommandSyntax& syntax, TrainOptions& options);

/// Throws UsageError if a value is not valid, or two options exclude each other.
void require_valid(TrainOptions const& options, std::string_view command);

/// The arguments after `train` with which a later start resumes in this directory, without options that hold only once.
/// --new-data stays, because a run that is lost before its first checkpoint on the new data needs it again; after that
/// it has no effect. With --fresh the directory is named.
std::vector<std::string> arguments_to_resume(TrainOptions const& options, std::filesystem::path const& directory);

/// The path run.directory, or with `fresh` the first of NAME-2, NAME-3, … that does not exist on this machine.
std::filesystem::path run_directory_for(std::filesystem::path name, bool fresh);

}  // namespace heddle
