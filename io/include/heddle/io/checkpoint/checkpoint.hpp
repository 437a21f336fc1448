#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/io/tensors/tensor_info.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The state of a training run apart from its parameters. Random numbers are counter-based: their whole state is seed
/// and step.
struct TrainingState {
  std::int64_t step = 0;      ///< optimizer steps done
  std::int64_t epoch = 0;     ///< the epoch of the next batch
  std::int64_t position = 0;  ///< the next sentence pair in that epoch's order
  std::int64_t tokens = 0;    ///< real source and target tokens seen so far
  std::uint64_t seed = 0;
  double seconds = 0;     ///< spent in training so far, over all restarts
  double best_value = 0;  ///< of train.best_metric in validation, after best_step
  std::int64_t best_step = 0;
  std::int64_t validations_without_improvement = 0;
  std::int64_t plateaus = 0;  ///< after each of them the learning rate is lower: optimizer.plateau_factor
  /// Where best_step is 0: the step of the checkpoint that was the best by another metric or validation set.
  std::int64_t earlier_best = 0;
  /// A stop signal came before the end of the validation that is due after `step`.
  bool validation_pending = false;
  /// The values were better in the last validation than their averages, which readers of the values otherwise get.
  bool values_better = false;

  /// The step of the best checkpoint; 0: there is none.
  std::int64_t best_checkpoint() const { return best_step > 0 ? best_step : earlier_best; }
};

/// The recent training losses, by which a rise of the loss is recognized.
struct LossHistory {
  static constexpr std::size_t max_recent = 1000;

  std::vector<double> recent = {};  ///< losses of the latest steps, oldest first; at most max_recent
  double best_mean = 0;             ///< the lowest mean over such a window
  std::int64_t best_step = 0;       ///< its last step; 0: there was none yet
  std::int64_t risen_steps = 0;     ///< the latest steps whose mean was far above it

  bool operator==(LossHistory const&) const = default;
};

/// The bytes of all files of CheckpointContents::origin.
inline constexpr std::int64_t max_origin_bytes = std::int64_t{64} << 20;

/// The name in CheckpointContents::origin of a record of where the model came from (JSON): no file of the other system.
inline constexpr char const* import_record = "heddle_import.json";

/// The checkpoint that a run's frozen parameters came from, to which the run's own checkpoints may leave them.
struct CheckpointBase {
  std::string checkpoint;                    ///< its directory, an absolute path
  std::string digest;                        ///< manifest_digest; empty: there is no base
  std::map<std::string, std::string> names;  ///< those parameters' names there, by their names here
  std::set<std::string> rounded = {};        ///< names here of those whose values are rounded to bfloat16 when read

  bool operator==(CheckpointBase const&) const = default;
};

/// A checkpoint's content except its tensors.
struct CheckpointContents {
  TrainingState state;
  std::string config;                      ///< the resolved configuration, TOML
  std::string source_model, target_model;  ///< the bytes of Tokenizer::model
  std::string instruction_set = {};        ///< "x86-64-v4": what the kernels that computed it used; empty: unknown
  std::string dataset = {};                ///< digest of the training data; empty: unknown
  std::string valid_dataset = {};          ///< digest of what best_value was measured on; empty: unknown
  std::string cursor = {};                 ///< places in a mixture's corpora; empty: state.epoch and state.position
  LossHistory losses = {};
  /// The metrics of train.best_metric after the first, and the line of metrics.jsonl that is begun; the program's own
  /// text, and empty where there is none.
  std::string further_best = {}, begun_line = {};
  /// The steps after which optimizer state began, by the parameter's name, where that was not with the run.
  std::map<std::string, std::int64_t> state_begins = {};
  /// If its first parameters were another system's: files that came with them, by name, "config.json" among them.
  std::map<std::string, std::string> origin = {};
  CheckpointBase base = {};

  std::int64_t origin_bytes() const {
    return std::accumulate(origin.begin(), origin.end(), std::int64_t{0},
                           [](std::int64_t sum, auto const& file) { return sum + std::ssize(file.second); });
  }
  /// Throws DataError if the models cannot be used.
  Vocabulary vocabulary() const {
    Tokenizer const source = Tokenizer::from_model(source_model);
    return {source, target_model == source_model ? source : Tokenizer::from_model(target_model)};
  }
};

/// The content of a state file.
struct CheckpointIndex {
  CheckpointContents contents;
  std::vector<TensorInfo> tensors;  ///< in canonical order
};

class SpreadFiles;
namespace hdf5 {
class ByteStore;
}

/// Elements of one array of a tensor: see Slice.
struct TensorSlice {
  std::string name;
  std::string key = value_key;
  std::vector<IndexRange> ranges = {};      ///< of the array's first axes; all indices of the others
  std::optional<IndexRange> elements = {};  ///< only these of them, numbered row major within the slice
};

/// The slices by the array's first axis that, in this order, are the array of the tensor, each of at most
/// `max_elements` or of one index: to read a large tensor in little memory. The blocks of a file that slices share are
/// verified twice, so slices should be much longer than these.
std::vector<TensorSlice> slabs_of(TensorInfo const& tensor, std::string const& key = value_key,
                                  std::int64_t max_elements = std::int64_t{4} << 20);

/// The keys of the arrays that a reader wants; empty: all.
using WantedKeys = std::vector<std::string>;

/// When the blocks with wanted arrays are compared with their digests. In any case no byte is used that was not.
enum class Verification : std::uint8_t {
  at_opening,  ///< all of them before the checkpoint is opened, and those that are read once more
  at_reading   ///< each one when it is read, so that damage shows only then: for a reader that has no other checkpoint
};

/// Elements of an array, and the memory for them.
struct SliceInto {
  TensorSlice slice;
  std::span<float> into;
};

/// A checkpoint directory that has been verified against its manifest, open for reading. Bytes that are read later are
/// verified again, in the memory in which it is then used.
class Checkpoint {
 public:
  /// Verifies the state file and, at opening, every block with arrays of the wanted keys (with all keys: every byte of
  /// the checkpoint), then opens. A wanted key that a tensor lacks is not an error. Throws DataError with the name of
  /// the file and the error. With several ranks each verifies a share of the bytes, and all throw if one of them finds
  /// an error. A reader that wants only the values gets the averages of those parameters that have one, under
  /// value_key, unless TrainingState::values_better. Collective over `world`.
  static Checkpoint open(std::filesystem::path const& directory, Communicator const& world = Communicator::self(),
                         WantedKeys const& keys = {}, Verification verification = Verification::at_opening);

  /// Opens one that is spread over the memory of several hosts and has been verified; `directory` is its name in
  /// messages. Throws DataError on all ranks. Collective over `world`.
  static Checkpoint open(std::filesystem::path const& directory, std::shared_ptr<SpreadFiles> spread,
                         Communicator const& world);

  std::filesystem::path const& directory() const { return directory_; }
  /// manifest_digest of the manifest with which it was opened.
  std::string const& digest() const { return digest_; }
  CheckpointContents const& contents() const { return index_.contents; }
  TrainingState const& state() const { return contents().state; }
  std::vector<TensorInfo> const& tensors() const { return index_.tensors; }
  bool contains(std::string const& name) const { return by_name_.contains(name); }
  /// Throws DataError if the checkpoint has no such tensor.
  TensorInfo const& tensor(std::string const& name) const;

  /// Reads these elements, row major. Throws DataError if the tensor is missing or lacks the key, if its bytes are no
  /// longer those that were verified, or if it holds numbers that no training leaves: infinite, not a number, or a
  /// negative second moment; Error if the checkpoint was not opened for the key.
  std::vector<float> read(TensorSlice const& slice) const;
  std::vector<float> read(std::string const& name, std::string const& key = value_key) const {
    return read(TensorSlice{name, key});
  }

  /// Reads many slices as `read` does, but each block of a file only once, by several threads: the fastest way to a
  /// whole model. Throws as `read` does, and Error for memory of another size.
  void read(std::span<SliceInto const> wanted) const;

  /// Whether contents().base has parameters that are not here.
  bool lacks_base() const;
  /// Adds the parameters that are missing here, to be read from contents().base, which is `base`: their values, without
  /// state. Throws DataError if one is missing there, too.
  void attach(std::shared_ptr<Checkpoint const> base);

  /// Whether the parameter is read from an attached base.
  bool in_base(std::string const& name) const { return in_base_.contains(name); }

  /// Brings what this rank is going to read to its host, if the checkpoint is spread over several. Throws Error on all
  /// ranks if that fails. Collective over `world`, which opened it.
  void fetch(std::vector<TensorSlice> const& slices, Communicator const& world);

 private:
  /// The readers of the files with tensors, null for one that is on another host only.
  using Files = std::vector<std::shared_ptr<hdf5::ByteStore>>;

  Checkpoint(std::filesystem::path directory, std::string digest, CheckpointIndex index, Files files, WantedKeys keys);

  /// Numbers the tensors by their names.
  void number_tensors();

  /// The bytes of a slice in its file, in order; none of the ranges is empty. Throws as read does.
  std::vector<IndexRange> bytes_of(TensorSlice const& slice) const;
  /// Reads slices of tensors that are in files of this checkpoint, as `read` does.
  void read_blocks(std::span<SliceInto const> wanted) const;
  /// Rounds numbers that were read from the base as CheckpointBase::rounded says.
  void round_of_base(std::string const& name, std::span<float> numbers) const;
  /// Makes numbers of a slice's bytes, which are at the end of `numbers`. Throws as read does.
  void finish(TensorSlice const& slice, std::span<float> numbers) const;

  std::filesystem::path directory_;
  std::string digest_;
  CheckpointIndex index_;
  Files files_;
  WantedKeys keys_;
  std::shared_ptr<SpreadFiles> spread_;  ///< null: all files are in `directory_`
  std::map<std::string, std::size_t> by_name_;
  std::shared_ptr<Checkpoint const> base_;
  std::map<std::string, std::string> in_base_;  ///< names there of parameters that are read from `base_`
};

}  // namespace heddle
