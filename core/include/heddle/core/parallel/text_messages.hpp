#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <string>
#include <vector>

// Strings of any length between two ranks, which travel while the ranks compute.

namespace heddle {

/// A string on its way to a rank: a message with its number of bytes, and one with its bytes.
class OutgoingText {
 public:
  /// Throws DataError for a string of more than 2 GiB.
  OutgoingText(Communicator const& world, std::string const& text, int to, int tag);

  /// Returns true if it has been sent.
  bool progress() { return header_.progress() && body_.progress(); }
  void wait();

 private:
  using Words = std::vector<std::int32_t>;  // of the element type that every communicator moves

  Words length_, words_;
  Transfer header_, body_;  // after what they send: they are destroyed first
};

/// Strings that come from a rank, one after the other.
class IncomingTexts {
 public:
  IncomingTexts(Communicator const& world, int from, int tag) : world_(world), from_(from), tag_(tag) { start(); }

  /// Returns true if a string is complete.
  bool progress();
  /// Waits for the next string.
  std::string take();
  /// Starts to receive the next string, after take().
  void start();

 private:
  using Words = std::vector<std::int32_t>;

  void start_body();

  Communicator world_;
  int from_;
  int tag_;
  Words length_{0}, words_;
  Transfer transfer_;
};

}  // namespace heddle
