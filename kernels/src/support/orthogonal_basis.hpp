#pragma once

#include <lapacke.h>

#include <cstdint>
#include <heddle/core/base/error.hpp>
#include <vector>

/// Orthogonal bases of small square matrices, by LAPACK. Matrices are [n, n], and their vectors are rows: LAPACK's
/// columns, which it keeps one after another.
namespace heddle::kernels {

inline void require_lapack(lapack_int result, char const* routine, std::int64_t side) {
  if (result != 0) {
    throw Error(
        "LAPACK's {} of a matrix with sides of {} ended with {}: its numbers are not finite, or it has no memory",
        routine, side, result);
  }
}

/// matrix = the eigenvectors of a symmetric matrix, in the order of ascending eigenvalues.
template <class Real>
void replace_by_eigenvectors(std::vector<Real>& matrix, std::int64_t side) {
  auto const n = static_cast<lapack_int>(side);
  std::vector<Real> eigenvalues(static_cast<std::size_t>(side));
  if constexpr (sizeof(Real) == sizeof(float)) {
    require_lapack(LAPACKE_ssyevd(LAPACK_COL_MAJOR, 'V', 'L', n, matrix.data(), n, eigenvalues.data()), "ssyevd", side);
  } else {
    require_lapack(LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'L', n, matrix.data(), n, eigenvalues.data()), "dsyevd", side);
  }
}

/// vectors = those of the factor Q in their QR decomposition: each orthogonal to the ones before it.
template <class Real>
void make_orthogonal(std::vector<Real>& vectors, std::int64_t side) {
  auto const n = static_cast<lapack_int>(side);
  std::vector<Real> scales(static_cast<std::size_t>(side));
  if constexpr (sizeof(Real) == sizeof(float)) {
    require_lapack(LAPACKE_sgeqrf(LAPACK_COL_MAJOR, n, n, vectors.data(), n, scales.data()), "sgeqrf", side);
    require_lapack(LAPACKE_sorgqr(LAPACK_COL_MAJOR, n, n, n, vectors.data(), n, scales.data()), "sorgqr", side);
  } else {
    require_lapack(LAPACKE_dgeqrf(LAPACK_COL_MAJOR, n, n, vectors.data(), n, scales.data()), "dgeqrf", side);
    require_lapack(LAPACKE_dorgqr(LAPACK_COL_MAJOR, n, n, n, vectors.data(), n, scales.data()), "dorgqr", side);
  }
}

}  // namespace heddle::kernels
