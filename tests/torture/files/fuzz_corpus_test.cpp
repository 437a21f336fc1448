#include <cstdlib>
#include <heddle/core/config/config.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <heddle/io/tensors/manifest.hpp>

#include "fuzz/targets.hpp"
#include "mutation.hpp"
#include "small_files.hpp"
#include "test.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

std::map<std::string, void (*)(fuzz::Bytes)> const targets{
    {"config", fuzz::config},   {"manifest", fuzz::manifest},         {"state_file", fuzz::state_file},
    {"dataset", fuzz::dataset}, {"kernel_times", fuzz::kernel_times}, {"safetensors", fuzz::safetensors}};

/// A good input for each target.
std::map<std::string, std::string> seeds() {
  TemporaryDirectory const directory;
  Config config;
  config.data.train = {"data/train.h5"};
  MeasuredTimes const times{
      .kernels = {{"this \"machine\"",
                   {{"gemm", {{"a problem", {{"onednn", 1.5e-3}, {"kokkos", 4e-3}}}, {"another", {{"kokkos", 1}}}}}}},
                  {"that machine", {}}},
      .calls = {{"that machine", {{"gemm forward", {{{100, 8}, 3, 4, 0.25, 1.9e9, 0.5}}}}}},
      .network = {"two ranks", {{"inside_node message", {2e-6, 1e-9}}}}};
  fs::path const checkpoint = small_checkpoint(directory / "run", {});
  return {{"config", to_toml(config)},
          {"manifest", manifest_text(read_manifest(checkpoint))},
          {"state_file", read_whole(checkpoint / "state.h5")},
          {"dataset", read_whole(small_dataset(directory / "train.h5"))},
          {"kernel_times", to_json(times)},
          {"safetensors",
           R"({"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"\u00fc":)"
           R"({"dtype":"BF16","shape":[7,2],"data_offsets":[32,60]},"empty":{"dtype":"F4","shape":[0],)"
           R"("data_offsets":[60,60]}})"}};
}

// Inputs that fuzzers once found, and some more. `scripts/torture fuzz --big` runs the fuzzers, which begin with the
// seeds that this test writes to $HEDDLE_FUZZ_SEEDS.
TEST(FuzzCorpus, EachInputIsReadOrRefused) {
  std::vector<std::pair<std::string, std::string>> inputs;
  for (auto const& [target, seed] : seeds()) {
    if (char const* const place = std::getenv("HEDDLE_FUZZ_SEEDS")) {
      fs::create_directories(fs::path(place) / target);
      std::ofstream(fs::path(place) / target / "seed", std::ios::binary) << seed;
    }
    inputs.emplace_back(target, seed);
    for (std::uint64_t number = 0; number < 20; ++number) {
      inputs.emplace_back(target, mutated(seed, number));
    }
    for (fs::path const& file : files_in(fs::path(HEDDLE_FUZZ_CORPUS) / target)) {
      inputs.emplace_back(target, read_whole(file));
    }
  }
  CaseResults const results = run_cases(std::ssize(inputs), [&](std::int64_t number) {
    auto const& [target, input] = inputs[static_cast<std::size_t>(number)];
    targets.at(target)({reinterpret_cast<std::uint8_t const*>(input.data()), input.size()});
    return true;  // a target ends the process if something is wrong
  });
  print_figures(results.text("inputs of fuzzers"));
  EXPECT_TRUE(results.good());
}

}  // namespace
}  // namespace heddle
