#include "engine/device/binary64.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace terrace::binary64 {

namespace {

constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

/// 1/i! as the binary64 quotient; i! is exact up to 18!.
constexpr double inverse_factorial(int i) {
    double factorial = 1.0;
    for (int k = 2; k <= i; ++k) {
        factorial *= k;
    }
    return 1.0 / factorial;
}

/// The same as tables: computed while compiling, since a table of rotary positions asks for
/// millions of sines.
constexpr std::array<double, 18> make_inverse_factorials() {
    std::array<double, 18> table{};
    for (int i = 0; i < 18; ++i) {
        table[static_cast<std::size_t>(i)] = inverse_factorial(i);
    }
    return table;
}

constexpr std::array<double, 18> make_alternating() {
    std::array<double, 18> table = make_inverse_factorials();
    for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = i % 4 >= 2 ? -table[i] : table[i];
    }
    return table;
}

constexpr std::array<double, 18> kInverseFactorial = make_inverse_factorials();
constexpr std::array<double, 18> kAlternating = make_alternating();

double power_of_two(std::int64_t n) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

}  // namespace

double ln(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    double k = static_cast<double>(static_cast<std::int64_t>((bits >> 52) & 0x7ff) - 1023);
    double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m = m / 2;
        k = k + 1;
    }
    const double s = (m - 1) / (m + 1);
    const double z = s * s;
    double p = 2.0 / 23;
    for (int i = 21; i >= 3; i -= 2) {
        p = std::fma(p, z, 2.0 / i);
    }
    const double y = std::fma(s * z, p, s + s);
    return std::fma(k, kLn2High, std::fma(k, kLn2Low, y));
}

double exp(double x) {
    if (x < -708) {
        return 0.0;
    }
    if (x > 708) {
        x = 708;
    }
    const double n = std::rint(x * 0x1.71547652b82fep+0);
    double t = std::fma(n, -kLn2High, x);
    t = std::fma(n, -kLn2Low, t);
    double p = kInverseFactorial[13];
    for (std::size_t i = 13; i-- > 0;) {
        p = std::fma(p, t, kInverseFactorial[i]);
    }
    return p * power_of_two(static_cast<std::int64_t>(n));
}

double pow(double a, double b) {
    return exp(b * ln(a));
}

SinCos sin_cos(double x) {
    const double n = std::rint(x * 0x1.45f306dc9c883p-1);
    double r = std::fma(n, -0x1.921fb54442d18p+0, x);
    r = std::fma(n, -0x1.1a62633145c07p-54, r);
    const double z = r * r;
    double p = kAlternating[17];
    for (std::size_t i = 15; i >= 3; i -= 2) {
        p = std::fma(p, z, kAlternating[i]);
    }
    const double s = std::fma(r * z, p, r);
    double q = kAlternating[16];
    for (std::size_t i = 14; i >= 2; i -= 2) {
        q = std::fma(q, z, kAlternating[i]);
    }
    const double c = std::fma(z, q, 1.0);
    switch (static_cast<std::int64_t>(n) & 3) {
        case 0:
            return {s, c};
        case 1:
            return {c, -s};
        case 2:
            return {-s, -c};
        default:
            return {-c, s};
    }
}

}  // namespace terrace::binary64
