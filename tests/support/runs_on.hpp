#pragma once

#include <map>
#include <string>
#include <vector>

namespace heddle {

/// Declares the numbers of ranks on which cases of a distributed test program run, by default all. A name is "Suite" or
/// "Suite.Case". `mpi_main.cpp` leaves the cases out on other numbers. A case that is selected by --gtest_filter runs
/// on any number of ranks, but fails on fewer than the lowest one.
class RunsOn {
 public:
  RunsOn(std::vector<std::string> const& names, std::vector<int> const& ranks) {
    for (std::string const& name : names) {
      declared()[name] = ranks;
    }
  }

  /// The numbers by names, for the main function.
  static std::map<std::string, std::vector<int>>& declared() {
    static std::map<std::string, std::vector<int>> by_name;
    return by_name;
  }
  /// Null if the case runs on any number of ranks.
  static std::vector<int> const* of(std::string const& suite, std::string const& name) {
    for (std::string const& key : {suite + "." + name, suite}) {
      if (auto const found = declared().find(key); found != declared().end()) {
        return &found->second;
      }
    }
    return nullptr;
  }
};

}  // namespace heddle
