#include <hdf5.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <heddle/io/tensors/manifest.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>

#include "digest_file.hpp"
#include "mutation.hpp"
#include "small_files.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

/// Runs `accepts` with mutated bytes, and prints and checks the results.
void attack(std::string const& what, std::string const& original, std::int64_t small,
            std::function<bool(std::string const& bytes)> const& accepts) {
  CaseResults const results = run_cases(torture_count(small, 10 * small), [&](std::int64_t number) {
    return accepts(mutated(original, static_cast<std::uint64_t>(number)));
  });
  print_figures(results.text(what));
  EXPECT_TRUE(results.good());
  EXPECT_GT(results.count(Outcome::refused), 0);
  EXPECT_TRUE(!memory_is_ours || results.largest_memory < std::int64_t{256} << 20) << results.largest_memory;
}

/// A checkpoint whose file has these bytes, with the manifest that belongs to them.
void forge(fs::path const& checkpoint, std::string const& file, std::string const& bytes) {
  write_file(checkpoint / file, bytes);
  Manifest manifest = read_manifest(checkpoint);
  for (FileDigest& digest : manifest.files) {
    digest = digest_file(checkpoint / digest.name);
  }
  write_file(checkpoint / manifest_file_name, manifest_text(manifest));
}

/// Whether a checkpoint with good digests, forged or not, has what every checkpoint of this step has.
bool is_usable(fs::path const& path, std::int64_t step) {
  Checkpoint const checkpoint = Checkpoint::open(path);
  bool good = checkpoint.state().step == step && checkpoint.state().epoch >= 0;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (std::string const& key : tensor.keys) {
      std::vector<float> const numbers = checkpoint.read(tensor.name, key);
      good = good && std::ssize(numbers) == tensor.elements();
      good = good && std::all_of(numbers.begin(), numbers.end(), [&](float number) {
               return std::isfinite(number) && (!key.ends_with("second_moment") || number >= 0);
             });
    }
  }
  return good;
}

class Hostile : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(Hostile, FilesOfACheckpointWithGoodDigests) {
  fs::path const checkpoint = small_checkpoint(directory_.path(), {.step = 7});
  for (std::string const file : {"state.h5", "tensors-00000.h5"}) {
    std::string const original = read_whole(checkpoint / file);
    attack("forged " + file, original.substr(0, 12'000), 200, [&](std::string const& bytes) {
      forge(checkpoint, file, bytes + (original.size() > 12'000 ? original.substr(12'000) : ""));
      return is_usable(checkpoint, 7);
    });
    forge(checkpoint, file, original);
  }
}

TEST_F(Hostile, Datasets) {
  fs::path const dataset = small_dataset(directory_ / "train.h5");
  Samples const samples = read_samples(dataset);
  attack("mutated datasets", read_whole(dataset), 200, [&](std::string const& bytes) {
    write_file(dataset, bytes);
    return read_samples(dataset) == samples;
  });
}

TEST_F(Hostile, Manifests) {
  Manifest manifest{42, {{"state.h5", 5, {std::string(64, 'a')}}, {"tensors-00000.h5", 0, {}}}};
  std::string const original = manifest_text(manifest);
  attack("mutated manifests", original, 200, [&](std::string const& text) {
    parse_manifest(text, "the manifest");
    return text == original;
  });
}

TEST_F(Hostile, Configurations) {
  Config config;
  config.data.train = {"data/train.h5"};
  attack("mutated configurations", to_toml(config), 200, [](std::string const& text) {
    std::string const read = to_toml(parse_config(text, "run.toml"));
    return to_toml(parse_config(read, "run.toml")) == read;
  });
}

TEST_F(Hostile, Vocabularies) {
  attack("mutated vocabularies", small_vocabulary(), 200, [](std::string const& model) {
    Tokenizer const tokenizer = Tokenizer::from_model(model);
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokenizer.size()));
    std::iota(all.begin(), all.end(), 0);
    static_cast<void>(tokenizer.decode(all));
    std::vector<std::int32_t> const ids = tokenizer.encode("abcdefgh ijkl 79 \xE2\x82\xAC");
    return std::all_of(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= 0 && id < tokenizer.size(); });
  });
}

TEST_F(Hostile, KernelTimes) {
  MeasuredTimes const times{
      .kernels = {{"this \"machine\"",
                   {{"gemm", {{"a problem", {{"onednn", 1.5e-3}, {"kokkos", 4e-3}}}, {"another", {{"kokkos", 1}}}}}}},
                  {"that machine", {}}},
      .calls = {{"that machine", {{"gemm forward", {{{100, 8}, 3, 4, 0.25, 1.9e9, 0.5}}}}}},
      .network = {"two ranks", {{"inside_node message", {2e-6, 1e-9}}}}};
  attack("mutated kernel times", to_json(times), 200, [](std::string const& text) {
    std::string const read = to_json(parse_measured_times(text, "kernels.json"));
    return to_json(parse_measured_times(read, "kernels.json")) == read;
  });
}

/// A dataset whose places of the target's sentences are 256 MiB of zeros, compressed to some hundred kilobytes.
void write_bomb(fs::path const& path) {
  small_dataset(path);
  hid_t const file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Ldelete(file, "/target/offsets", H5P_DEFAULT);
  hsize_t const extent = hsize_t{1} << 25;
  hsize_t const chunk = hsize_t{1} << 20;
  hid_t const space = H5Screate_simple(1, &extent, nullptr);
  hid_t const creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 1, &chunk);
  H5Pset_deflate(creation, 9);
  hid_t const dataset = H5Dcreate2(file, "/target/offsets", H5T_STD_I64LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  std::vector<std::int64_t> const zeros(extent);
  ASSERT_GE(H5Dwrite(dataset, H5T_STD_I64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), 0);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
}

TEST_F(Hostile, ACompressedBombIsRefusedBeforeItGrows) {
  fs::path const bomb = directory_ / "bomb.h5";
  pid_t const child = ::fork();
  if (child == 0) {
    write_bomb(bomb);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_LT(fs::file_size(bomb), 4U << 20);
  CaseResults const results = run_cases(1, [&](std::int64_t) {
    read_samples(bomb);
    return false;
  });
  print_figures(results.text("compressed bomb in /target/offsets"));
  EXPECT_EQ(results.count(Outcome::refused), 1);
  EXPECT_LT(results.largest_memory, std::int64_t{100} << 20);
}

}  // namespace
}  // namespace heddle
