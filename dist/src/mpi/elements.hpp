#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

MPI_Datatype mpi_type(DType dtype);

std::byte* address(Tensor const& tensor, std::int64_t element);

/// Consecutive elements that one MPI call moves.
struct Piece {
  std::int64_t begin;
  int count;
};

/// [0, elements) in pieces of at most `elements_per_call`: a range to iterate over.
class Pieces {
 public:
  Pieces(std::int64_t elements, std::int64_t elements_per_call, std::int64_t count)
      : elements_(elements), elements_per_call_(elements_per_call), count_(count) {}

  class Iterator {
   public:
    Iterator(Pieces const& pieces, std::int64_t index) : pieces_(pieces), index_(index) {}
    Piece operator*() const;
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(Iterator const& other) const { return index_ == other.index_; }

   private:
    Pieces const& pieces_;
    std::int64_t index_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, count_}; }

 private:
  std::int64_t elements_;
  std::int64_t elements_per_call_;
  std::int64_t count_;
};

/// None if there are no elements.
Pieces pieces(std::int64_t elements, std::int64_t elements_per_call);

/// As `pieces`, but at least one: an empty message between two ranks is also a message.
Pieces message_pieces(std::int64_t elements, std::int64_t elements_per_call);

}  // namespace heddle
