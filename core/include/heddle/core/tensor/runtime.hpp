#pragma once

#include <heddle/core/tensor/arena.hpp>
#include <memory>
#include <string>

namespace heddle {

struct Execution;

/// Runs Kokkos during its lifetime (once per process) and owns the default Execution. Flushes denormals to zero on the
/// calling thread and on all threads started from it, which include Kokkos' and oneDNN's.
class Runtime {
 public:
  Runtime();
  ~Runtime();

  Execution& execution() { return *execution_; }
  /// The Kokkos execution space's name, for example "Serial".
  static std::string execution_space();

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
  std::unique_ptr<Arena> scratch_;
  std::unique_ptr<Execution> execution_;
};

}  // namespace heddle
