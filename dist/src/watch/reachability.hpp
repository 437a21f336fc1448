#pragma once

#include <atomic>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <utility>
#include <vector>

#include "side_channel.hpp"

namespace heddle {

/// Whether the ranks reach each other through the side channel, found out by questions at the start: if a firewall
/// closes UDP, a missing answer is not evidence of a hang.
class Reachability {
 public:
  explicit Reachability(SideChannel const& channel);

  /// Asks other ranks until they have answered, at most some seconds, while another thread answers questions and calls
  /// `answered`. Each rank asks all others, or max_asked of them in large worlds. Collective over `world`.
  void probe(Communicator const& world);
  static constexpr int max_asked = 32;
  /// Any thread.
  void answered(int rank) { heard_[static_cast<std::size_t>(rank)].store(true); }
  bool is_known() const { return known_.load(); }

  // Once it is known:
  /// Whether this rank hears that rank; of one that was not asked, whether the ranks of their hosts hear each other.
  bool reachable(int rank) const;
  /// "n1 and n2, within n3", the same on every rank; "" if all reach all.
  std::string const& unreachable() const { return text_; }

 private:
  /// Waits for the answers of the ranks that it asks again and again; returns those that did not come.
  std::vector<int> ask() const;

  SideChannel const& channel_;
  std::vector<int> asked_;
  std::vector<std::atomic<bool>> heard_;
  std::atomic<bool> known_ = false;
  std::vector<std::pair<std::string, std::string>> closed_;  ///< pairs of hosts, each in order
  std::string text_;
};

}  // namespace heddle
