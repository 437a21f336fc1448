#include "new_run.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/regular_file.hpp>

#include "checkpoint.hpp"

namespace heddle {

namespace {

CheckpointStore store_of(std::filesystem::path const& run) {
  return {run / "checkpoints", 2};
}

}  // namespace

void require_new_run(std::filesystem::path const& run) {
  if (auto const newest = store_of(run).newest_step()) {
    throw UsageError(fmt::format("--out {}: there is a run with a checkpoint of step {}; name a new directory",
                                 run.string(), *newest));
  }
  bool const taken =
      std::filesystem::exists(run) && !(std::filesystem::is_directory(run) && std::filesystem::is_empty(run));
  if (taken) {
    throw UsageError(fmt::format("--out {}: there are other files; name a new directory", run.string()));
  }
}

NewPlace::NewPlace(std::filesystem::path directory) {
  for (; !directory.empty() && !std::filesystem::exists(std::filesystem::symlink_status(directory));
       directory = directory.parent_path()) {
    made_ = directory;
  }
}

NewPlace::~NewPlace() {
  std::error_code ignored;
  if (!made_.empty()) {
    std::filesystem::remove_all(made_, ignored);
  }
}

CheckpointContents contents_of_new_run(std::filesystem::path const& run, Checkpoint const& from) {
  if (!from.contents().base.checkpoint.empty()) {
    throw ConfigError(
        fmt::format("{}: has adapters without their base (adapter.save_base = false); make a model of both first: "
                    "heddle export {} --merge --format heddle --out DIRECTORY",
                    from.directory().string(), from.directory().string()));
  }
  Config const config =
      stored_config(from, {fmt::format("run.directory={}", boost::json::serialize(boost::json::string(run.string()))),
                           "train.initialize_from=\"\"", "train.initialize_missing=[]", "train.initialize_rename=[]"});
  CheckpointContents contents;
  contents.state.seed = config.train.seed;
  contents.config = to_toml(config);
  contents.source_model = from.contents().source_model;
  contents.target_model = from.contents().target_model;
  contents.origin = from.contents().origin;
  return contents;
}

std::filesystem::path write_new_run(std::filesystem::path const& run, CheckpointContents const& contents,
                                    TensorStream& tensors) {
  CommitResult const committed = store_of(run).commit(Communicator::self(), contents, tensors, 1);
  replace_file(run / "config.toml", contents.config);
  replace_file(run / "source.model", contents.source_model);
  replace_file(run / "target.model", contents.target_model);
  return committed.directory;
}

}  // namespace heddle
