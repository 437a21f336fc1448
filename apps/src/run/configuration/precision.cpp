#include "precision.hpp"

#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <string>

#include "run/checkpoints/checkpoint_room.hpp"

namespace heddle {

namespace {

Precision decided(CpuLevel level, std::filesystem::path const& run) {
  if (auto const newest = run.empty() ? std::nullopt : newest_contents(run)) {
    return parse_config(newest->config, "the checkpoint's configuration").train.precision;
  }
  bool const has_instructions = kernel_memory_space() != MemorySpace::host || level >= CpuLevel::v4_bf16;
  return has_instructions ? Precision::bfloat16 : Precision::float32;
}

}  // namespace

void resolve_precision(Config& config, CpuLevel level, std::filesystem::path const& run, Communicator const& world) {
  if (config.train.precision == Precision::automatic) {
    std::string const own = world.rank() == 0 ? std::string(name_of(decided(level, run))) : "";
    config.train.precision =
        broadcast_text(world, own) == name_of(Precision::bfloat16) ? Precision::bfloat16 : Precision::float32;
  }
}

}  // namespace heddle
