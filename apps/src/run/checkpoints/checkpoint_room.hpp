#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace heddle {

/// The tensors of a run's checkpoints when all parameters are trained that ever are, sorted by name. Parameters with a
/// name in `left_out` are not among them.
std::vector<StreamedTensor> largest_tensors(WholeModel const& model, Config const& config,
                                            KernelRegistries const& kernels,
                                            std::set<std::string> const& left_out = {});

/// The room on the disk for the checkpoints of a run, whose directory need not exist yet.
class CheckpointRoom {
 public:
  /// For a run that keeps `keep` of the newest checkpoints, each of `bytes`.
  CheckpointRoom(std::filesystem::path const& run, std::int64_t keep, std::int64_t bytes);

  /// "A checkpoint takes 1.2 GiB on the disk; with the newest 3, the best one and one that is written, 6.0 GiB: 20.0
  /// GiB are free".
  std::string describe() const;
  /// Whether there is room for all that will be there at once.
  bool suffices() const { return free_ >= at_once_ * bytes_ - there_; }
  /// Throws ConfigError where there is no room for another checkpoint: the run would end with its first one.
  void require_one() const;

 private:
  std::filesystem::path run_;
  std::int64_t bytes_ = 0;    ///< of one
  std::int64_t at_once_ = 0;  ///< the maximum number at one time
  std::int64_t there_ = 0;    ///< bytes of those that are there
  std::int64_t free_ = 0;     ///< bytes
  std::int64_t keep_ = 0;
};

/// The room for checkpoints of a run of this model, each with `origin_bytes` of CheckpointContents::origin.
CheckpointRoom checkpoint_room(std::filesystem::path const& run, Config const& config, WholeModel const& model,
                               Vocabulary const& vocabulary, KernelRegistries const& kernels,
                               std::int64_t origin_bytes);

/// The record of the newest checkpoint of a run; nothing if there is none or it cannot be read. Reads no
/// tensors. Throws DataError if something other than a directory has the name of the checkpoints' directory.
std::optional<CheckpointContents> newest_contents(std::filesystem::path const& run);

}  // namespace heddle
