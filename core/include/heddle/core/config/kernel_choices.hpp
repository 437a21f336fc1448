#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// The names of Heddle's operations, in the order in which they are shown. An operation `name` has
/// core/operations/name.hpp (its interface, problem and front end) with a source, trials in core/src/trials/
/// name_trials.cpp, from which this list is made, and in kernels/src/name a reference.cpp with `add_name_kernels` and
/// a kokkos.cpp with `add_portable_name_kernels`. Plug-ins add operations that are not in this list.
std::span<std::string_view const> operation_names();

/// `[kernels]`: an implementation for each operation, and where times are kept. Operations are listed by name:
/// Heddle's own, and those that a plug-in adds, which are known when it is loaded (KernelRegistries::require_known).
class KernelChoices {
 public:
  struct Choice {
    std::string implementation = "auto";
    std::string origin = {};  ///< where it was made: "run.toml:3:1"; not part of its value

    bool operator==(Choice const& other) const { return implementation == other.implementation; }
  };
  using Operation = std::pair<std::string, Choice>;

  KernelChoices() : KernelChoices("auto") {}
  /// The same implementation for every operation of operation_names().
  explicit KernelChoices(std::string const& implementation);

  /// The implementation for an operation; "auto" if none was named.
  std::string const& of(std::string_view operation) const { return choice(operation).implementation; }
  Choice const& choice(std::string_view operation) const;
  void choose(std::string_view operation, std::string implementation, std::string origin = "");

  /// Heddle's own operations, then added ones, in that order.
  std::vector<Operation> const& operations() const { return operations_; }

  bool operator==(KernelChoices const&) const = default;

  std::string cache = "auto";  ///< a file of measured times; "auto": the user's, "": none

 private:
  std::vector<Operation> operations_;
};

}  // namespace heddle
