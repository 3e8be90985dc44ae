// Spheres that reflect, a checkered plane and a cone of light.
#version 3.7;
global_settings { assumed_gamma 1.0 }
camera { location <0, 2, -6> look_at <0, 1, 0> }
light_source { <4, 6, -5> color rgb 1 }
light_source { <-6, 4, -2> color rgb <0.3, 0.3, 0.5> spotlight point_at <0, 1, 0> radius 20 falloff 30 }
plane { y, 0 pigment { checker color rgb 0.9, color rgb 0.2 } finish { reflection 0.2 } }
#declare Row = 0;
#while (Row < 4)
  sphere { <Row * 1.2 - 1.8, 0.6, Row * 0.5>, 0.55
    texture { pigment { granite scale 0.4 } normal { bumps 0.3 scale 0.1 } finish { phong 0.8 reflection 0.25 } } }
  #declare Row = Row + 1;
#end
difference { box { <-3, 0, 2>, <3, 2.2, 2.6> } cylinder { <0, 1, 1>, <0, 1, 3>, 0.8 } pigment { marble turbulence 0.6 } }
