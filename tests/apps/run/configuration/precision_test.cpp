#include "run/configuration/precision.hpp"

#include <heddle/core/tensor/tensor.hpp>

#include "test.hpp"

namespace heddle {
namespace {

Precision resolved(Precision precision, CpuLevel level) {
  Config config;
  config.train.precision = precision;
  resolve_precision(config, level);
  return config.train.precision;
}

TEST(PrecisionTest, AutoIsBfloat16WhereThereAreInstructionsForIt) {
  bool const on_host = kernel_memory_space() == MemorySpace::host;
  EXPECT_EQ(resolved(Precision::automatic, CpuLevel::v3), on_host ? Precision::float32 : Precision::bfloat16);
  EXPECT_EQ(resolved(Precision::automatic, CpuLevel::v4), on_host ? Precision::float32 : Precision::bfloat16);
  EXPECT_EQ(resolved(Precision::automatic, CpuLevel::v4_bf16), Precision::bfloat16);
}

TEST(PrecisionTest, OneThatIsGivenStays) {
  EXPECT_EQ(resolved(Precision::bfloat16, CpuLevel::baseline), Precision::bfloat16);
  EXPECT_EQ(resolved(Precision::float32, CpuLevel::v4_bf16), Precision::float32);
}

}  // namespace
}  // namespace heddle
