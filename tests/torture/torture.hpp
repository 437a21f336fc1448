#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Helpers of the parts of scripts/torture.
namespace heddle {

/// False under AddressSanitizer, which has memory of its own: limits of memory and time mean nothing there.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool memory_is_ours = false;
#else
inline constexpr bool memory_is_ours = true;
#endif

/// `big` under `scripts/torture --big`, else `small`.
/// Whether the counts are the big ones.
bool torture_is_big();
std::int64_t torture_count(std::int64_t small, std::int64_t big);

/// Prints what scripts/torture shows of a part.
void print_figures(std::string const& text);

/// The result of one case.
enum class Outcome : std::uint8_t {
  not_run,
  refused,
  same,      ///< accepted, and as good as the original: a byte without meaning was changed
  accepted,  ///< accepted although it is not the original
  wrong_error,
  crashed,
  hung,
};

/// The results of many cases.
struct CaseResults {
  std::int64_t count(Outcome outcome) const;
  /// The first cases with this outcome.
  std::vector<std::int64_t> examples(Outcome outcome) const;
  /// "20000 flips: undetected 0, …"
  std::string text(std::string const& what) const;
  /// Whether no case was accepted wrongly, ended with an error of another kind, crashed or hung.
  bool good() const;

  std::vector<Outcome> outcomes;
  std::int64_t largest_memory = 0;  ///< bytes that a process had at most
};

/// Runs cases 0 to `cases` - 1 in child processes that may crash, hang or use up their memory; each continues after the
/// case in which the one before ended. `run` returns true if the case was accepted with what the original holds, and
/// false if with other content; it throws an `Error` of the kind that refuses it. Anything else that it throws is a
/// wrong error.
CaseResults run_cases(std::int64_t cases, std::function<bool(std::int64_t)> const& run);

}  // namespace heddle
