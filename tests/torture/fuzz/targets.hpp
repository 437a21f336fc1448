#pragma once

#include <cstdint>
#include <span>

/// Functions that libFuzzer runs: each reads bytes as one of Heddle's files. A refusal is an Error; any other
/// exception, and a wrong result, ends the process.
namespace heddle::fuzz {

using Bytes = std::span<std::uint8_t const>;

void config(Bytes bytes);
void manifest(Bytes bytes);
void state_file(Bytes bytes);
void dataset(Bytes bytes);
void kernel_times(Bytes bytes);
void safetensors(Bytes bytes);

}  // namespace heddle::fuzz
