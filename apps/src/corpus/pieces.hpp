#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "inference/piece_generator.hpp"

namespace heddle {

/// Consecutive lines that are computed together, by one process. Its result does not depend on other pieces, so that
/// any number of processes make the same text of all pieces.
struct Piece {
  std::int64_t number = 0;  ///< from 0
  std::vector<SourceLine> lines = {};
};

struct PieceResult {
  std::int64_t number = 0;
  std::string text = {};                   ///< what is written for the piece
  std::vector<std::string> messages = {};  ///< for standard error
  std::vector<double> sums = {};           ///< added up over all pieces
  std::int64_t lines = 0;
  std::int64_t tokens = 0;  ///< that were generated
};

std::string to_bytes(Piece const& piece);
std::string to_bytes(PieceResult const& result);
/// Inverses of to_bytes. They throw Error for bytes that it did not make.
Piece piece_of(std::string const& bytes);
PieceResult result_of(std::string const& bytes);

/// Computes a piece, and calls `pause` now and then, some hundred times in a second.
using ComputePiece = std::function<PieceResult(Piece const& piece, std::function<void()> const& pause)>;

/// The pieces that a worker has at a time: one that it computes, and the next one.
inline constexpr std::size_t max_worker_pieces = 2;

/// Processes that compute pieces.
class PieceWorkers {
 public:
  virtual ~PieceWorkers() = default;
  /// Whether a process has no piece waiting after the one that it computes.
  virtual bool wants_piece() const = 0;
  /// May be called only if a piece is wanted.
  virtual void give(Piece piece) = 0;
  /// Waits for the next result, in any order; a piece must have been given. Calls `refill`, which gives pieces if some
  /// are wanted, while it waits. Throws what a worker threw.
  virtual PieceResult take(std::function<void()> const& refill) = 0;
};

/// This process alone.
class OwnWorker final : public PieceWorkers {
 public:
  explicit OwnWorker(ComputePiece compute) : compute_(std::move(compute)) {}
  bool wants_piece() const override { return !piece_; }
  void give(Piece piece) override { piece_ = std::move(piece); }
  PieceResult take(std::function<void()> const& refill) override;

 private:
  ComputePiece compute_;
  std::optional<Piece> piece_;
};

/// Gives all pieces of `next`, which returns nothing at the end, to the workers, and their results to `finish` in the
/// order of the pieces.
void process_pieces(std::function<std::optional<Piece>()> const& next, PieceWorkers& workers,
                    std::function<void(PieceResult)> const& finish);

}  // namespace heddle
